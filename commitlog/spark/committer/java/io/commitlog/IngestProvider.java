package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.StreamSourceProvider;
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
        StructType columns = columns(schema);
        Agent.askForSource(request(context, columns, parameters, "ingest.check"));
        return new Tuple2(NAME, columns);
    }

    public Source createSource(SQLContext context, String metadataPath, Option schema, String name,
            scala.collection.immutable.Map parameters) {
        StructType columns = columns(schema);
        Map request = request(context, columns, parameters, "ingest.check");
        JsonNode options = Agent.askForSource(request);
        return new IngestSource(context.sparkSession(), columns, request, options);
    }

    private static StructType columns(Option schema) {
        if (!schema.isDefined()) {
            throw new CommitException("commitlog.errors.ConfigurationError: format " + NAME + " infers no columns:"
                + " give them with .schema(...), or use format commitlog_ingest", null);
        }
        return ((StructType) schema.get()).asNullable();
    }

    private static Map request(
            SQLContext context, StructType columns, scala.collection.immutable.Map parameters, String call) {
        Map options = new HashMap(Scala.map(parameters));
        Map request = new HashMap();
        request.put("call", call);
        request.put("query", UUID.randomUUID().toString());
        request.put("options", options);
        request.put("schema", columns.json());
        request.put("hadoop", null);
        String path = (String) options.get("path");
        if (path != null && path.matches("(?i)s3a?://.+")) {
            String bucket = path.substring(path.indexOf("://") + 3).split("[/?]", 2)[0];
            Object state = Scala.call(context.sparkSession(), "sessionState");
            Configuration conf = (Configuration) Scala.call(state, "newHadoopConf");
            request.put("hadoop", S3A.settings(conf, bucket));
        }
        return request;
    }
}
