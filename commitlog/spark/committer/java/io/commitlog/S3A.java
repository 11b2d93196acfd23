package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.spark.SparkConf;

/**
 * The magic paths of Hadoop's file system S3A: a file that is written there is an upload, not yet an object.
 *
 * Source: hadoop-aws, "S3A Committers: Architecture and Implementation", section "Magic Committer". S3A's own
 * classes are not on the path of every Spark, so they are used only through FileSystem.
 */
final class S3A {
    private static final String CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem";
    private static final String IN_MEMORY = "fs.s3a.committer.magic.track.commits.in.memory.enabled";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PREFIX = "fs.s3a.";
    private static final String PROVIDERS = "hadoop.security.credential.provider.path";
    // What Hadoop may keep in a credential provider: S3AUtils.lookupPassword.
    private static final String[] SECRETS = new String[] {
        "access.key", "secret.key", "session.token", "encryption.key", "server-side-encryption.key",
        "proxy.username", "proxy.password"};

    private S3A() {}

    /** Returns whether a file system is S3A. On some platforms it also serves the scheme s3. */
    static boolean is(FileSystem fs) {
        Class type = fs.getClass();
        while (type != null && !type.getName().equals(CLASS)) {
            type = type.getSuperclass();
        }
        return type != null;
    }

    /** Returns the error for another file system that serves the scheme s3a, as on some platforms. */
    static CommitException otherClass(FileSystem fs) {
        return new CommitException("commitlog.errors.NotSupported: s3a:// is served by "
            + fs.getClass().getName() + ", not by Hadoop's S3A; nothing was written. Set fs.s3a.impl to "
            + CLASS + ", write with format(\"commitlog\"), or set spark.sql.sources.commitProtocolClass to the"
            + " protocol of Spark, org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
            null);
    }

    /** Throws CommitException if the session cannot read s3a://. */
    static void check(Configuration conf) {
        String problem;
        try {
            FileSystem.getFileSystemClass("s3a", conf);
            return;
        } catch (IOException e) {
            problem = e.getMessage();
        } catch (RuntimeException e) { // the class is missing
            problem = e.getMessage();
        }
        throw new CommitException("commitlog.errors.NotSupported: this session cannot read s3a:// (" + problem
            + "): add org.apache.hadoop:hadoop-aws, or use format commitlog_ingest", null);
    }

    /** Returns the URL of a path that S3A serves, with the scheme s3a. */
    static String url(Path path) {
        return "s3a" + path.toString().substring(path.toUri().getScheme().length());
    }

    /** Returns all settings of S3A for `bucket`, by their full names. */
    static Map settings(Configuration conf, String bucket) {
        Map found = new HashMap();
        Map all = conf.getPropsWithPrefix(PREFIX);
        for (Object name : all.keySet()) {
            found.put(PREFIX + name, all.get(name));
        }
        String ofBucket = PREFIX + "bucket." + bucket + ".";
        Configuration providers = new Configuration(conf);
        String path = conf.get(PROVIDERS, "");
        path = conf.get(PREFIX + "security.credential.provider.path", "") + "," + path;
        path = conf.get(ofBucket + "security.credential.provider.path", "") + "," + path;
        providers.set(PROVIDERS, path.replaceAll("^,+|,+$|,+(?=,)", ""));
        try {
            for (int i = 0; i < SECRETS.length; i++) {
                lookUp(providers, PREFIX + SECRETS[i], found);
                lookUp(providers, ofBucket + SECRETS[i], found);
                lookUp(providers, ofBucket + PREFIX + SECRETS[i], found);
            }
        } catch (IOException e) {
            throw new CommitException("commitlog.errors.ConfigurationError: a credential provider of Hadoop"
                + " (" + PROVIDERS + ") cannot be read: " + e.getMessage(), e);
        }
        return found;
    }

    private static void lookUp(Configuration conf, String name, Map found) throws IOException {
        char[] value = conf.getPassword(name);
        if (value != null && value.length > 0) {
            found.put(name, new String(value));
        }
    }

    /** Returns the directory of the magic paths of an attempt, relative to `root`. */
    static String magicDirectory(FileSystem fs, Path root, String attempt) {
        boolean enabled;
        try {
            enabled = fs.hasPathCapability(root, "fs.s3a.capability.magic.committer");
        } catch (IOException e) {
            throw new CommitException("no access to " + root + ": " + e.getMessage(), e);
        }
        if (!enabled) {
            throw new CommitException("commitlog.errors.ConfigurationError: S3A's magic paths are disabled for "
                + root + ": set fs.s3a.committer.magic.enabled to true (its default), or"
                + " spark.commitlog.visibility to logged. Nothing was written", null);
        }
        // "__magic" up to Hadoop 3.4.0, "__magic_job-…" since.
        try {
            Class constants = Class.forName(
                "org.apache.hadoop.fs.s3a.commit.CommitConstants", true, fs.getClass().getClassLoader());
            return constants.getField("MAGIC_PATH_PREFIX").get(null) + attempt;
        } catch (NoSuchFieldException e) {
            return "__magic/job-" + attempt;
        } catch (ReflectiveOperationException e) {
            throw new CommitException("commitlog.errors.NotSupported: " + fs.getClass().getName()
                + " has no magic paths of S3A: write to s3a://… with hadoop-aws", e);
        }
    }

    /**
     * Returns the directory for the files of a task attempt. Their places follow after "__base".
     *
     * Hadoop takes the fourth directory for the name of the attempt (MagicCommitTrackerUtils).
     */
    static String taskDirectory(String magicDirectory, TaskAttemptID attempt) {
        return magicDirectory + "/job/0/tasks/" + attempt + "/__base";
    }

    /** Makes S3A keep the records of uploads in memory, if it can and nothing else is configured. */
    static void keepRecordsInMemory(SparkConf conf, Configuration hadoop) {
        if (!conf.contains("spark.hadoop." + IN_MEMORY)) {
            hadoop.set(IN_MEMORY, "true");
        }
    }

    /**
     * Returns size, upload id and etags of the uploads of a task attempt, with their names.
     *
     * Args: the task's directory, the names of its files below, and the task attempt. Names without an upload
     * are left out. The records in memory are removed.
     */
    static ArrayList uploads(FileSystem fs, String directory, List names, TaskAttemptID attempt)
            throws IOException {
        Map inMemory = takeRecords(fs, attempt);
        ArrayList found = new ArrayList();
        for (Object name : names) {
            Path file = new Path(directory, (String) name);
            Object record = inMemory.get(file.toUri().toString());
            Map upload = record == null ? stored(fs, file) : described(record);
            if (upload != null) { // some formats write no file if there are no rows
                upload.put("name", name);
                upload.put("stored", Boolean.valueOf(record == null));
                found.add(upload);
            }
        }
        return found;
    }

    /** Removes the records in memory of a task attempt, and returns them by the URIs of their paths. */
    static Map takeRecords(FileSystem fs, TaskAttemptID attempt) {
        Map found = new HashMap();
        try {
            Class tracker = Class.forName(
                "org.apache.hadoop.fs.s3a.commit.magic.InMemoryMagicCommitTracker", true,
                fs.getClass().getClassLoader());
            List records = (List) ((Map) call(tracker, null, "getTaskAttemptIdToMpuMetadata"))
                .remove(attempt.toString());
            List paths = (List) ((Map) call(tracker, null, "getTaskAttemptIdToPath")).remove(attempt.toString());
            Map sizes = (Map) call(tracker, null, "getPathToBytesWritten");
            if (paths != null) {
                for (Object path : paths) {
                    sizes.remove(path);
                }
            }
            if (records != null) {
                for (Object record : records) {
                    found.put(call(record.getClass(), record, "getUri"), record);
                }
            }
        } catch (ClassNotFoundException e) {
            // Hadoop before 3.4.1 stores all records
        } catch (ReflectiveOperationException e) {
            throw new CommitException("commitlog.errors.NotSupported: this S3A keeps the records of uploads in"
                + " another way: set spark.hadoop." + IN_MEMORY + " to false", e);
        }
        return found;
    }

    private static Object call(Class type, Object object, String method) throws ReflectiveOperationException {
        return type.getMethod(method, new Class[0]).invoke(object, new Object[0]);
    }

    private static Map described(Object record) throws IOException {
        try {
            ArrayList etags = new ArrayList();
            for (Object etag : (List) call(record.getClass(), record, "getEtags")) {
                // A text up to Hadoop 3.4.1, an UploadEtag since.
                etags.add(etag instanceof String ? etag : call(etag.getClass(), etag, "getEtag"));
            }
            Object size = call(record.getClass(), record, "getLength");
            return upload(size, call(record.getClass(), record, "getUploadId"), etags);
        } catch (ReflectiveOperationException e) {
            throw new IOException("the record of an upload cannot be read: " + record, e);
        }
    }

    private static Map stored(FileSystem fs, Path file) throws IOException {
        JsonNode record;
        try {
            InputStream in = fs.open(file.suffix(".pending"));
            try {
                record = JSON.readTree(in);
            } finally {
                in.close();
            }
        } catch (FileNotFoundException e) {
            return null;
        }
        ArrayList etags = new ArrayList();
        for (Iterator i = record.get("etags").elements(); i.hasNext();) {
            JsonNode etag = (JsonNode) i.next();
            etags.add(etag.isTextual() ? etag.asText() : etag.get("etag").asText());
        }
        return upload(Long.valueOf(record.get("length").asLong()), record.get("uploadId").asText(), etags);
    }

    private static Map upload(Object size, Object id, ArrayList etags) {
        Map upload = new HashMap();
        upload.put("size", size);
        upload.put("upload", id);
        upload.put("etags", etags);
        return upload;
    }
}
