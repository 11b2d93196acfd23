package io.commitlog;

import java.io.File;
import java.net.URI;
import java.net.URL;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.slf4j.LoggerFactory;

/**
 * The plugin that makes Spark's file writers commit with commitlog: spark.plugins=io.commitlog.CommitlogPlugin.
 *
 * It sets spark.sql.sources.commitProtocolClass for all sessions of the application, and starts the commit
 * agent while Spark starts. S3A then keeps the records of uploads in memory, unless it is configured.
 */
public final class CommitlogPlugin implements SparkPlugin {
    private static final String PROTOCOL = "spark.sql.sources.commitProtocolClass";
    private static final String JARS_OF_HIVE = "hive.reloadable.aux.jars.path";

    public DriverPlugin driverPlugin() {
        return new Driver();
    }

    public ExecutorPlugin executorPlugin() {
        return null;
    }

    /** The part of the plugin that runs in the driver. */
    private static final class Driver implements DriverPlugin {
        public Map init(SparkContext context, PluginContext plugin) {
            String wanted = "io.commitlog.CommitlogCommitProtocol";
            String present = context.conf().get(PROTOCOL, wanted);
            if (!present.equals(wanted)) {
                LoggerFactory.getLogger(CommitlogPlugin.class).warn("{} replaces {}", wanted, present);
            }
            context.conf().set(PROTOCOL, wanted);
            S3A.keepRecordsInMemory(context.conf(), context.hadoopConfiguration());
            addToSessionsOfHive(context.hadoopConfiguration());
            Agent.startInBackground(context.conf());
            return new HashMap();
        }

        public void shutdown() {
            Agent.stop();
        }

        /** Lets the Thrift server open sessions: Hive's class loader of a session has no jars of --jars. */
        private static void addToSessionsOfHive(Configuration conf) {
            URL jar = CommitlogPlugin.class.getProtectionDomain().getCodeSource().getLocation();
            if ("file".equals(jar.getProtocol())) {
                String present = conf.get(JARS_OF_HIVE, "");
                String path = new File(URI.create(jar.toString())).getPath();
                conf.set(JARS_OF_HIVE, present.length() == 0 ? path : present + "," + path);
            }
        }
    }
}
