package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.SparkContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * A commit protocol: tasks write files that readers do not see, and the commit agent publishes them.
 *
 * On the driver, setupJob asks the agent to begin a job. commitJob sends it the list of all files, from
 * the messages of the task attempts that Spark accepted. Nothing is deleted before the commit:
 * deleteWithJob only records which directories the commit replaces.
 *
 * Janino compiles this class against one Spark, and it runs on all of them from 3.5, for Scala 2.12 and
 * 2.13. So it uses neither lambdas nor generics, and Scala's collections only by the class Scala.
 */
public final class CommitlogCommitProtocol extends FileCommitProtocol implements Serializable {
    private static final String OPTIONS = "spark.commitlog.";
    // The setting in which Spark's Parquet writer keeps the columns of the files.
    private static final String SCHEMA = "org.apache.spark.sql.parquet.row.attributes";

    private final String jobId;
    private final String path;
    private final boolean dynamic;

    // For the tasks: the name of the attempt, and where they write.
    private String attempt;
    private String directory;
    private boolean magic;

    // Driver only. The state has credentials, which the tasks must not get.
    private final transient List replaced = new ArrayList();
    private transient List staged;
    private transient JsonNode state;
    private transient String magicDirectory;

    // Tasks only.
    private transient TaskFiles files;

    public CommitlogCommitProtocol(String jobId, String path, boolean dynamicPartitionOverwrite) {
        this.jobId = jobId;
        this.path = path;
        this.dynamic = dynamicPartitionOverwrite;
    }

    // driver

    public boolean deleteWithJob(FileSystem fs, Path deleted, boolean recursive) {
        String top = fs.makeQualified(new Path(path)).toUri().getPath();
        String name = fs.makeQualified(deleted).toUri().getPath();
        if (!name.equals(top) && !name.startsWith(top + "/")) {
            throw elsewhere(name);
        }
        replaced.add(name.equals(top) ? "" : name.substring(top.length() + 1));
        return true;
    }

    public void setupJob(JobContext context) {
        Configuration conf = context.getConfiguration();
        FileSystem fs = fileSystem(conf);
        Path root = fs.makeQualified(new Path(path));
        SaveMode mode = Statement.mode(path);
        // Spark calls deleteWithJob only for a directory that exists when the statement begins. That of a
        // partition does not if only the log shows its files, and another job may create that of the output.
        if (mode == SaveMode.Overwrite && !dynamic) {
            String directory = Statement.overwrittenDirectory(path);
            if (!replaced.contains(directory)) {
                replaced.add(directory);
            }
        }
        Map request = request("begin");
        request.put("exclusive", Boolean.valueOf(mode == SaveMode.ErrorIfExists));
        boolean local = "file".equals(root.toUri().getScheme());
        boolean s3a = S3A.is(fs);
        if (!s3a && "s3a".equals(root.toUri().getScheme())) {
            throw S3A.otherClass(fs);
        }
        String url = s3a ? S3A.url(root) : root.toString();
        request.put("path", local ? root.toUri().getPath() : url);
        request.put("options", new HashMap(conf.getPropsWithPrefix(OPTIONS)));
        request.put("thread", SparkContext.getOrCreate().getLocalProperty(OPTIONS + "jobId"));
        request.put("session", sessionOptions());
        request.put("table", committerOptions(Statement.optionsOfTable(path)));
        Map statement = Statement.optionsOfStatement(path);
        request.put("statement", statement == null ? null : committerOptions(statement));
        String schema = conf.get(SCHEMA);
        request.put("schema", schema == null ? Statement.schemaOfFiles(path) : schema);
        request.put("format", Statement.format(path));
        request.put("formatOptions", Statement.optionsOfFormat(path));
        request.put("replaced", replaced);
        request.put("dynamic", Boolean.valueOf(dynamic));
        request.put("partition", Statement.partitionColumns(path));
        request.put("caseSensitive", Boolean.valueOf(SQLConf.get().caseSensitiveAnalysis()));
        if (s3a) {
            request.put("hadoop", S3A.settings(conf, root.toUri().getHost()));
        }
        JsonNode job = Agent.ask(request);
        staged = new ArrayList();
        state = job.get("state");
        attempt = job.get("attempt").asText();
        magic = "magic".equals(job.get("staging").asText());
        if (magic) {
            try {
                magicDirectory = S3A.magicDirectory(fs, root, attempt);
            } catch (CommitException e) {
                abortJob(context);
                throw e;
            }
        }
        String below = magic ? magicDirectory : job.get("directory").asText();
        directory = below.length() == 0 ? root.toString() : new Path(root, below).toString();
    }

    public void onTaskCommit(FileCommitProtocol.TaskCommitMessage message) {
        staged.addAll((List) message.obj());
    }

    /** Called by Spark for Scala 2.13. */
    public void commitJob(JobContext context, scala.collection.immutable.Seq messages) {
        commit(Scala.list(messages));
    }

    /** Called by Spark for Scala 2.12. */
    public void commitJob(JobContext context, scala.collection.Seq messages) {
        commit(Scala.list(messages));
    }

    private void commit(List messages) {
        List all = new ArrayList();
        for (Object message : messages) {
            all.addAll((List) ((FileCommitProtocol.TaskCommitMessage) message).obj());
        }
        Agent.ask(ending("commit", all));
    }

    public void abortJob(JobContext context) {
        // An exception here would hide the cause of the job's failure.
        try {
            if (state != null) { // else the job was not begun
                Agent.ask(ending("abort", staged));
            }
        } catch (RuntimeException e) {
            LoggerFactory.getLogger(getClass()).warn("job " + jobId + " could not be aborted", e);
        }
    }

    // tasks

    public void setupTask(TaskAttemptContext context) {
        String root = magic ? S3A.taskDirectory(directory, context.getTaskAttemptID()) : directory;
        files = new TaskFiles(root, magic);
    }

    public String newTaskTempFile(TaskAttemptContext context, Option dir, FileNameSpec spec) {
        // Several attempts at one task may run at the same time, even after Spark has given one up.
        int task = context.getTaskAttemptID().getTaskID().getId();
        int number = context.getTaskAttemptID().getId();
        String name = String.format("part-%05d-%s-%d", new Object[] {
            Integer.valueOf(task), attempt, Integer.valueOf(number)});
        String below = dir.isDefined() ? dir.get() + "/" : "";
        return files.add(below + spec.prefix() + name + spec.suffix());
    }

    public String newTaskTempFile(TaskAttemptContext context, Option dir, String ext) {
        return newTaskTempFile(context, dir, new FileNameSpec("", ext));
    }

    public String newTaskTempFileAbsPath(TaskAttemptContext context, String absoluteDir, FileNameSpec spec) {
        throw elsewhere(absoluteDir);
    }

    public String newTaskTempFileAbsPath(TaskAttemptContext context, String absoluteDir, String ext) {
        throw elsewhere(absoluteDir);
    }

    public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
        try {
            return new FileCommitProtocol.TaskCommitMessage(
                files.finish(context.getConfiguration(), context.getTaskAttemptID()));
        } catch (IOException e) {
            throw new CommitException("the task's files could not be completed: " + e.getMessage(), e);
        }
    }

    public void abortTask(TaskAttemptContext context) {
        try {
            files.drop(context.getConfiguration(), context.getTaskAttemptID());
        } catch (IOException e) {
            LoggerFactory.getLogger(getClass()).warn("files of a failed task are left for gc", e);
        }
    }

    // private

    private Map request(String call) {
        Map request = new HashMap();
        request.put("call", call);
        return request;
    }

    private Map ending(String call, List found) {
        Map request = request(call);
        request.put("state", state);
        request.put("files", found);
        request.put("magic", magicDirectory);
        return request;
    }

    /** Returns the settings of the session, without those of the write. */
    private static Map sessionOptions() {
        return committerOptions(Scala.map(SQLConf.get().getAllConfs()));
    }

    /** Returns the committer's options among `options`, by their names without the prefix. */
    private static Map committerOptions(Map options) {
        Map found = new HashMap();
        for (Object name : options.keySet()) {
            String key = (String) name;
            if (key.startsWith(OPTIONS)) {
                found.put(key.substring(OPTIONS.length()), options.get(key));
            }
        }
        return found;
    }

    private FileSystem fileSystem(Configuration conf) {
        try {
            return new Path(path).getFileSystem(conf);
        } catch (IOException e) {
            throw new CommitException("no access to " + path + ": " + e.getMessage(), e);
        }
    }

    private static CommitException elsewhere(String where) {
        return new CommitException(
            "commitlog.errors.NotSupported: " + where + " is not below the output: partitions with a"
            + " location of their own cannot be committed with it. Nothing was changed; write them as an"
            + " output of their own", null);
    }
}
