package io.commitlog;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;

/** The SQL statement that runs in this thread and writes to an output. */
final class Statement {
    private Statement() {}

    /** Returns the plan that writes to `output`; null if there is none. */
    static InsertIntoHadoopFsRelationCommand writing(String output) {
        QueryExecution execution = running(SQLExecution.EXECUTION_ID_KEY());
        return execution == null ? null : find(execution.analyzed(), output);
    }

    /**
     * Returns the mode in which the running statement writes to `output`; null if there is none.
     *
     * It is null for a new table, too: Spark writes its rows in mode overwrite, even for saveAsTable in mode
     * append. If two statements create the table at once, one fails, but must not replace the other's rows.
     */
    static SaveMode mode(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        return insert == null || createsTable(insert) ? null : insert.mode();
    }

    private static boolean createsTable(InsertIntoHadoopFsRelationCommand insert) {
        QueryExecution root = running(SQLExecution.EXECUTION_ROOT_ID_KEY());
        if (root == null || insert.catalogTable().isDefined()) {
            return false;
        }
        return description(root) != null || creation(root.analyzed()) != null;
    }

    /**
     * Returns the directory that the running statement overwrites, relative to `output`: that of the partition
     * which it names, as INSERT OVERWRITE t PARTITION (k = 1) does, or "" for the whole output.
     */
    static String overwrittenDirectory(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        Map values = Scala.map(insert.staticPartitions());
        StringBuilder path = new StringBuilder();
        for (Object column : Scala.list(insert, "partitionColumns")) {
            String name = ((Attribute) column).name();
            if (values.containsKey(name)) { // the value may be null
                path.append(path.length() == 0 ? "" : "/");
                path.append(ExternalCatalogUtils.getPartitionPathString(name, (String) values.get(name)));
            }
        }
        return path.toString();
    }

    /** Returns the names of the partition columns of the rows for `output`; null if no statement tells them. */
    static List partitionColumns(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        if (insert == null) {
            return null;
        }
        List names = new ArrayList();
        for (Object column : Scala.list(insert, "partitionColumns")) {
            names.add(((Attribute) column).name());
        }
        return names;
    }

    /** Returns the columns of the files for `output` in Spark's JSON; null if no statement tells them. */
    static String schemaOfFiles(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        if (insert == null) {
            return null;
        }
        Set inPath = new HashSet();
        for (Object column : Scala.list(insert, "partitionColumns")) {
            inPath.add(((Attribute) column).exprId());
        }
        List fields = new ArrayList();
        for (Object each : Scala.list(insert, "outputColumns")) {
            Attribute column = (Attribute) each;
            if (!inPath.contains(column.exprId())) {
                fields.add(new StructField(
                    column.name(), column.dataType(), column.nullable(), column.metadata()));
            }
        }
        return DataTypes.createStructType(fields).json();
    }

    /** Returns the format of the files for `output`, such as csv; null if no statement tells it. */
    static String format(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        if (insert == null) {
            return null;
        }
        Object format = insert.fileFormat();
        return format instanceof DataSourceRegister
            ? ((DataSourceRegister) format).shortName() : format.getClass().getName();
    }

    /** Returns the options of the format of the files for `output`. */
    static Map optionsOfFormat(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        return insert == null ? new HashMap() : new HashMap(Scala.map(insert.options()));
    }

    /** Returns the options of the table of `output`; empty if `output` belongs to no table. */
    static Map optionsOfTable(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        boolean hasTable = insert != null && insert.catalogTable().isDefined();
        return hasTable ? options((CatalogTable) insert.catalogTable().get()) : new HashMap();
    }

    /**
     * Returns the options of saveAsTable or CREATE TABLE ... AS SELECT; empty for other statements. Returns
     * null for saveAsTable with a table that exists on Spark before 4.1, which does not keep its options.
     */
    static Map optionsOfStatement(String output) {
        // Spark runs the part that writes as a statement of its own.
        QueryExecution root = running(SQLExecution.EXECUTION_ROOT_ID_KEY());
        CatalogTable saved = root == null ? null : description(root);
        if (saved != null) {
            return options(saved);
        }
        CreateDataSourceTableAsSelectCommand creation = root == null ? null : creation(root.analyzed());
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        boolean hasTable = insert != null && insert.catalogTable().isDefined();
        if (creation == null) {
            return new HashMap();
        }
        return hasTable ? null : options(creation.table());
    }

    /** Returns the table of saveAsTable; null for other statements, and before Spark 4.1. */
    private static CatalogTable description(QueryExecution root) {
        // CreateTable from Spark 4.1 on, SaveAsV1TableCommand from 4.3 on.
        try {
            Method described = root.logical().getClass().getMethod("tableDesc", new Class[0]);
            return (CatalogTable) described.invoke(root.logical(), new Object[0]);
        } catch (ReflectiveOperationException e) {
            return null; // another statement
        }
    }

    private static CreateDataSourceTableAsSelectCommand creation(LogicalPlan plan) {
        if (plan instanceof CreateDataSourceTableAsSelectCommand) {
            return (CreateDataSourceTableAsSelectCommand) plan;
        }
        CreateDataSourceTableAsSelectCommand found = null;
        for (Iterator i = Scala.list(plan, "children").iterator(); found == null && i.hasNext();) {
            found = creation((LogicalPlan) i.next());
        }
        return found;
    }

    private static QueryExecution running(String property) {
        String id = SparkContext.getOrCreate().getLocalProperty(property);
        return id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    }

    private static InsertIntoHadoopFsRelationCommand find(LogicalPlan plan, String output) {
        if (plan instanceof InsertIntoHadoopFsRelationCommand) {
            InsertIntoHadoopFsRelationCommand insert = (InsertIntoHadoopFsRelationCommand) plan;
            return output.equals(insert.outputPath().toString()) ? insert : null;
        }
        InsertIntoHadoopFsRelationCommand found = null;
        for (Iterator i = Scala.list(plan, "children").iterator(); found == null && i.hasNext();) {
            found = find((LogicalPlan) i.next(), output);
        }
        return found;
    }

    private static Map options(CatalogTable table) {
        return Scala.map(table.storage().properties());
    }
}
