package io.commitlog;

import java.util.Map;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;

/**
 * The partition that a statement names to overwrite: INSERT OVERWRITE t PARTITION (k = 1).
 *
 * Spark asks the committer to delete the directory of the partition, but only if it exists. In an output
 * whose files only its log shows, no such directory exists. Without this class, the statement would add
 * its rows to those that it must replace.
 */
final class NamedPartition {
    private NamedPartition() {}

    /** Returns its directory, relative to `output`; null if the running statement names no partition. */
    static String directoryIn(String output) {
        InsertIntoHadoopFsRelationCommand insert = Statement.writing(output);
        boolean named = insert != null && insert.mode() == SaveMode.Overwrite
            && !Scala.map(insert.staticPartitions()).isEmpty();
        return named ? directory(insert) : null;
    }

    private static String directory(InsertIntoHadoopFsRelationCommand insert) {
        Map values = Scala.map(insert.staticPartitions());
        StringBuilder path = new StringBuilder();
        for (Object column : Scala.list(insert, "partitionColumns")) {
            String name = ((Attribute) column).name();
            String value = (String) values.get(name);
            if (value != null) {
                String separator = path.length() == 0 ? "" : "/";
                path.append(separator);
                path.append(ExternalCatalogUtils.getPartitionPathString(name, value));
            }
        }
        return path.toString();
    }
}
