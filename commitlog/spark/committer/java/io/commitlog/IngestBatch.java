package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The files of a batch, as scans of Spark.
 *
 * The columns in the path of a file (name=value) and those of its metadata are partition columns of a scan. All
 * files of a scan have the same ones, so there is a scan for each set of them: a group.
 *
 * The files are asked for when Spark plans the scan: when a query starts, Spark also asks for the batch that
 * it has committed last, and does not read it.
 */
final class IngestBatch {
    private static final String METADATA = "_metadata";

    private final IngestSource source;
    private final String start;
    private final String end;
    private final JsonNode plan;
    private List files; // of each group; null before they are asked for
    private HashMap versions; // by the paths of the files

    IngestBatch(IngestSource source, String start, String end) {
        this.source = source;
        this.start = start;
        this.end = end;
        plan = source.ask("ingest.plan", start, end);
    }

    /** Returns the rows of all files, as a stream. */
    Dataset rows() {
        source.fit(plan.get("count").asLong(), size(), plan.get("largest").asLong());
        Dataset all = null;
        int groups = Math.max(1, plan.get("groups").size()); // a batch without files has columns, too
        for (int i = 0; i < groups; i++) {
            Dataset rows = rows(i);
            all = all == null ? rows : all.union(rows);
        }
        return all;
    }

    private Dataset rows(int group) {
        List inPath = inPath(group);
        StructField[] fields = source.columns.fields();
        List ofContent = new ArrayList();
        List ofMetadata = new ArrayList();
        String[] selected = new String[fields.length];
        for (int i = 0; i < fields.length; i++) {
            String name = fields[i].name();
            selected[i] = quoted(name);
            if (inPath.contains(name)) {
                continue;
            } else if (name.equals(METADATA) && fields[i].dataType() instanceof StructType) {
                StringBuilder members = new StringBuilder();
                StructField[] inner = ((StructType) fields[i].dataType()).fields();
                for (int j = 0; j < inner.length; j++) {
                    StructField each = inner[j];
                    String flat = METADATA + "." + each.name();
                    ofMetadata.add(new StructField(flat, each.dataType(), true, each.metadata()));
                    members.append(j == 0 ? "" : ", ").append("'").append(each.name()).append("', ")
                        .append(quoted(flat));
                }
                selected[i] = "named_struct(" + members + ") AS " + quoted(METADATA);
            } else {
                ofContent.add(fields[i]);
            }
        }
        List ofPath = new ArrayList();
        for (Object name : inPath) { // the order of the values
            ofPath.add(fields[source.columns.fieldIndex((String) name)]);
        }
        ofPath.addAll(ofMetadata);
        StructType partition = struct(ofPath);
        HadoopFsRelation relation = new HadoopFsRelation(
            PlannedFiles.index(this, group, partition), partition, struct(ofContent), Option.empty(),
            CheckedFormat.of(source.options.get("format").asText(), this),
            Scala.immutable(source.readerOptions()), source.scans);
        Dataset rows = dataset(source.session, LogicalRelation$.MODULE$.apply(relation, true));
        return ofPath.isEmpty() ? rows : rows.selectExpr(selected);
    }

    /** Returns the columns in the paths of the files of a group. */
    private List inPath(int group) {
        List found = new ArrayList();
        JsonNode names = (JsonNode) plan.get("groups").get(group);
        if (names != null) { // else the batch has no files
            for (Iterator i = names.elements(); i.hasNext();) {
                found.add(((JsonNode) i.next()).asText());
            }
        }
        return found;
    }

    private static StructType struct(List fields) {
        StructField[] array = new StructField[fields.size()];
        for (int i = 0; i < array.length; i++) {
            array[i] = (StructField) fields.get(i);
        }
        return new StructType(array);
    }

    private static String quoted(String name) {
        return "`" + name.replace("`", "``") + "`";
    }

    /** Returns the rows of a plan. The class with the method is another one from Spark 4 on. */
    private static Dataset dataset(SparkSession session, Object plan) {
        try {
            Object companion;
            try {
                companion = Class.forName("org.apache.spark.sql.classic.Dataset$").getField("MODULE$").get(null);
            } catch (ClassNotFoundException e) {
                companion = Class.forName("org.apache.spark.sql.Dataset$").getField("MODULE$").get(null);
            }
            return (Dataset) Scala.method(companion, "ofRows", 2).invoke(companion, new Object[] {session, plan});
        } catch (InvocationTargetException e) {
            throw new CommitException("the scan of the batch cannot be analyzed: " + e.getCause(), e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new CommitException("this Spark has another Dataset", e);
        }
    }

    // for the scan

    /** Returns the size of all files in bytes. */
    long size() {
        return plan.get("bytes").asLong();
    }

    /** Returns the directory above all files. */
    Path root() {
        return path(source.options.get("root").asText());
    }

    /** Returns what identifies the versions of the files to read, by the paths of their URIs. */
    synchronized HashMap versions() {
        load();
        return versions;
    }

    /** Returns the files of a group to read: pairs of a FileStatus, and the values of its columns. */
    synchronized List files(int group) {
        load();
        return (List) files.get(group);
    }

    private void load() {
        if (files != null) {
            return;
        }
        List loaded = new ArrayList();
        for (int i = 0; i < Math.max(1, plan.get("groups").size()); i++) {
            loaded.add(new ArrayList());
        }
        HashMap found = new HashMap();
        for (Iterator i = source.ask("ingest.files", start, end).get("files").elements(); i.hasNext();) {
            JsonNode file = (JsonNode) i.next();
            Path path = path(file.get("path").asText());
            FileStatus status = new FileStatus(
                file.get("size").asLong(), false, 1, 0, file.get("modified").asLong(), path);
            found.put(path.toUri().getPath(), file.get("version").asText());
            ((List) loaded.get(file.get("group").asInt())).add(new Object[] {status, file.get("values")});
        }
        versions = found;
        files = loaded;
    }

    private Path path(String path) {
        JsonNode authority = source.options.get("authority");
        return new Path(source.options.get("scheme").asText(), authority.isNull() ? null : authority.asText(), path);
    }
}
