package io.commitlog;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import scala.Function1;

/**
 * A file format of Spark whose readers compare each file with the version that was listed; see CheckedReader.
 *
 * Spark's planner knows Parquet and ORC by their classes, so these formats are subclasses. Others are proxies.
 * For Spark 3.5, that of Avro is in a jar of its own.
 */
final class CheckedFormat implements InvocationHandler {
    private static final String PACKAGE = "org.apache.spark.sql.";
    private static final String READER = "buildReaderWithPartitionValues";
    /** Hadoop's files of defaults. Their values are the defaults in Hadoop's code, too. */
    private static final Set FILES_OF_DEFAULTS = new HashSet(
        Arrays.asList(new String[] {"core-default.xml", "hdfs-default.xml", "mapred-default.xml", "yarn-default.xml"}));
    /** Defaults that are kept, besides those of the file system of the files. */
    private static final String[] KEPT = new String[] {
        "file.", "fs.automatic.", "fs.client.", "fs.creation.", "fs.defaultFS", "fs.iostatistics.",
        "fs.permissions.", "hadoop.tmp.dir", "io."};

    private final FileFormat format;
    private final IngestBatch batch;

    private CheckedFormat(FileFormat format, IngestBatch batch) {
        this.format = format;
        this.batch = batch;
    }

    /** Returns a format by its name. */
    static FileFormat of(String name, IngestBatch batch) {
        if (name.equals("parquet")) {
            return new Parquet(batch);
        } else if (name.equals("orc")) {
            return new Orc(batch);
        }
        try {
            FileFormat format = (FileFormat) type(name).newInstance();
            return (FileFormat) Proxy.newProxyInstance(CheckedFormat.class.getClassLoader(),
                new Class[] {FileFormat.class, DataSourceRegister.class}, new CheckedFormat(format, batch));
        } catch (ReflectiveOperationException e) {
            throw new CommitException("commitlog.errors.NotSupported: this Spark cannot read " + name, e);
        }
    }

    /** Throws CommitException if Spark has no reader of a format. */
    static void check(String name, SparkSession session) {
        if (name.equals("parquet") || name.equals("orc")) {
            return;
        }
        try {
            type(name);
        } catch (ClassNotFoundException e) {
            String[] numbers = scala.util.Properties.versionNumberString().split("[.]");
            String module = "org.apache.spark:spark-avro_" + numbers[0] + "." + numbers[1] + ":" + session.version();
            throw new CommitException("commitlog.errors.NotSupported: this session has no reader of " + name
                + (name.equals("avro") ? ": add " + module + " (spark.jars.packages)" : "")
                + ", or use format commitlog_ingest", null);
        }
    }

    /** Returns the class of a format. The jar of Avro may be one of the session. */
    private static Class type(String name) throws ClassNotFoundException {
        String type = name.equals("avro") ? "avro.AvroFileFormat"
            : name.equals("csv") ? "execution.datasources.csv.CSVFileFormat"
            : name.equals("json") ? "execution.datasources.json.JsonFileFormat"
            : "execution.datasources.text.TextFileFormat";
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        return Class.forName(PACKAGE + type, true, loader == null ? CheckedFormat.class.getClassLoader() : loader);
    }

    public Object invoke(Object proxy, Method method, Object[] args) throws Throwable {
        String name = method.getName();
        if (name.equals(READER)) {
            return reader(format, args, batch);
        } else if (name.equals("equals")) {
            return Boolean.valueOf(proxy == args[0]);
        } else if (name.equals("hashCode")) {
            return Integer.valueOf(System.identityHashCode(proxy));
        }
        try {
            return method.invoke(format, args);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    /** Returns the reader of a format, which compares files. */
    static Function1 reader(FileFormat format, Object[] args, IngestBatch batch) {
        try {
            Configuration conf = settings((Configuration) args[6], batch.root().toUri().getScheme());
            args[6] = conf;
            Function1 reader = (Function1) Scala.method(format, READER, args.length).invoke(format, args);
            return new CheckedReader(reader, batch.versions(), (SparkSession) args[0], conf);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof RuntimeException) {
                throw (RuntimeException) e.getCause();
            }
            throw new CommitException("no reader: " + e.getCause(), e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new CommitException("this Spark has another FileFormat", e);
        }
    }

    /**
     * Returns the settings of Hadoop without the defaults that readers do not use: about 70 of 1,100 are left.
     *
     * Spark copies all settings for each file. For a small file that takes longer than reading it.
     */
    private static Configuration settings(Configuration conf, String scheme) {
        Configuration found = new Configuration(false);
        found.setClassLoader(conf.getClassLoader());
        for (Iterator i = conf.iterator(); i.hasNext();) {
            Map.Entry entry = (Map.Entry) i.next();
            String name = (String) entry.getKey();
            String[] sources = conf.getPropertySources(name);
            String source = sources == null || sources.length == 0 ? "" : sources[sources.length - 1];
            boolean wanted = !FILES_OF_DEFAULTS.contains(source) || name.startsWith("fs." + scheme + ".");
            for (int j = 0; j < KEPT.length && !wanted; j++) {
                wanted = name.startsWith(KEPT[j]);
            }
            if (wanted) {
                found.set(name, (String) entry.getValue());
            }
        }
        return found;
    }

    /** Parquet. */
    static final class Parquet extends ParquetFileFormat {
        private final transient IngestBatch batch;

        Parquet(IngestBatch batch) {
            this.batch = batch;
        }

        /** Called by Spark for Scala 2.13. */
        public Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partition,
                StructType required, scala.collection.immutable.Seq filters,
                scala.collection.immutable.Map options, Configuration conf) {
            Object[] args = new Object[] {session, data, partition, required, filters, options, conf};
            return CheckedFormat.reader(new ParquetFileFormat(), args, batch);
        }

        /** Called by Spark for Scala 2.12. */
        public Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partition,
                StructType required, scala.collection.Seq filters, scala.collection.immutable.Map options,
                Configuration conf) {
            Object[] args = new Object[] {session, data, partition, required, filters, options, conf};
            return CheckedFormat.reader(new ParquetFileFormat(), args, batch);
        }
    }

    /** ORC. */
    static final class Orc extends OrcFileFormat {
        private final transient IngestBatch batch;

        Orc(IngestBatch batch) {
            this.batch = batch;
        }

        /** Called by Spark for Scala 2.13. */
        public Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partition,
                StructType required, scala.collection.immutable.Seq filters,
                scala.collection.immutable.Map options, Configuration conf) {
            Object[] args = new Object[] {session, data, partition, required, filters, options, conf};
            return CheckedFormat.reader(new OrcFileFormat(), args, batch);
        }

        /** Called by Spark for Scala 2.12. */
        public Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partition,
                StructType required, scala.collection.Seq filters, scala.collection.immutable.Map options,
                Configuration conf) {
            Object[] args = new Object[] {session, data, partition, required, filters, options, conf};
            return CheckedFormat.reader(new OrcFileFormat(), args, batch);
        }
    }
}
