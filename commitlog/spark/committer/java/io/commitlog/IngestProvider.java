package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;

/**
 * The format commitlog_ingest_spark: a stream of the records in all objects of a bucket, read by Spark's readers.
 *
 * The commit agent decides which files a batch has (commitlog.spark.ingest.scans). The jar names this class to
 * Spark in META-INF/services.
 */
public final class IngestProvider implements StreamSourceProvider, DataSourceRegister {
    private static final String NAME = "commitlog_ingest_spark";

    public IngestProvider() {}

    public String shortName() {
        return NAME;
    }

    public Tuple2 sourceSchema(
            SQLContext context, Option schema, String name, scala.collection.immutable.Map parameters) {
        Map request = request(context.sparkSession(), schema, parameters);
        return new Tuple2(NAME, columns(schema, check(context.sparkSession(), request)));
    }

    public Source createSource(SQLContext context, String metadataPath, Option schema, String name,
            scala.collection.immutable.Map parameters) {
        SparkSession session = context.sparkSession();
        Map request = request(session, schema, parameters);
        JsonNode options = check(session, request);
        StructType columns = columns(schema, options);
        request.put("schema", columns.json());
        return new IngestSource(session, columns, request, options);
    }

    /** Returns the answer to ingest.check. */
    private static JsonNode check(SparkSession session, Map request) {
        JsonNode options = Agent.askForSource(request);
        CheckedFormat.check(options.get("format").asText(), session);
        return options;
    }

    /** Returns the columns of the user, or those that the agent has inferred. */
    private static StructType columns(Option schema, JsonNode options) {
        DataType columns = schema.isDefined()
            ? (DataType) schema.get() : DataType.fromJson(options.get("schema").asText());
        return ((StructType) columns).asNullable();
    }

    /** Returns a request for ingest.check; its schema is null if columns are to be inferred. */
    private static Map request(SparkSession session, Option schema, scala.collection.immutable.Map parameters) {
        Map options = new HashMap(Scala.map(parameters));
        Map request = new HashMap();
        request.put("call", "ingest.check");
        request.put("query", UUID.randomUUID().toString());
        request.put("options", options);
        request.put("schema", schema.isDefined() ? ((StructType) schema.get()).asNullable().json() : null);
        request.put("hadoop", null);
        String path = (String) options.get("path");
        if (path != null && path.matches("(?i)s3a?://.+")) {
            String bucket = path.substring(path.indexOf("://") + 3).split("[/?]", 2)[0];
            Object state = Scala.call(session, "sessionState");
            Configuration conf = (Configuration) Scala.call(state, "newHadoopConf");
            S3A.check(conf);
            request.put("hadoop", S3A.settings(conf, bucket));
        }
        return request;
    }
}
