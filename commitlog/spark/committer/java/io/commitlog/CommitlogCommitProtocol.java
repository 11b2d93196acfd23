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
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * A commit protocol: Spark's file writers write below a hidden directory, and Python commits the files.
 *
 * On the driver, setupJob asks Python to begin a job. commitJob sends Python the list of all files, from
 * the messages of the task attempts that Spark accepted. Nothing is deleted before the commit:
 * deleteWithJob only records which directories the commit replaces.
 *
 * Janino compiles this class against one version of Spark 4, and it runs on all of them. So it uses
 * neither lambdas nor generics.
 */
public final class CommitlogCommitProtocol extends FileCommitProtocol implements Serializable {
    private static final String OPTIONS = "spark.commitlog.";
    // The setting in which Spark's Parquet writer keeps the columns of the files.
    private static final String SCHEMA = "org.apache.spark.sql.parquet.row.attributes";

    private final String jobId;
    private final String path;
    private final boolean dynamic;

    // Python's answer to setupJob, for the tasks.
    private String attempt;
    private String directory;
    private boolean temporary;

    // Driver only.
    private final transient List replaced = new ArrayList();
    private transient List staged;

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
        Path root = qualified(conf);
        String named = dynamic ? null : NamedPartition.directoryIn(path);
        if (named != null && !replaced.contains(named)) {
            replaced.add(named);
        }
        Map request = request("begin");
        boolean local = "file".equals(root.toUri().getScheme());
        request.put("path", local ? root.toUri().getPath() : root.toString());
        request.put("options", new HashMap(conf.getPropsWithPrefix(OPTIONS)));
        request.put("thread", SparkContext.getOrCreate().getLocalProperty(OPTIONS + "jobId"));
        request.put("session", sessionOptions());
        request.put("table", committerOptions(Statement.optionsOfTable(path)));
        request.put("statement", committerOptions(Statement.optionsOfStatement(path)));
        request.put("schema", conf.get(SCHEMA));
        request.put("replaced", replaced);
        request.put("dynamic", Boolean.valueOf(dynamic));
        JsonNode job = Driver.ask(request);
        attempt = job.get("attempt").asText();
        directory = new Path(root, job.get("directory").asText()).toString();
        temporary = job.get("temporary").asBoolean();
        staged = new ArrayList();
    }

    public void onTaskCommit(FileCommitProtocol.TaskCommitMessage message) {
        staged.addAll((List) message.obj());
    }

    public void commitJob(JobContext context, Seq messages) {
        List all = new ArrayList();
        for (Iterator i = messages.iterator(); i.hasNext();) {
            all.addAll((List) ((FileCommitProtocol.TaskCommitMessage) i.next()).obj());
        }
        Map request = request("commit");
        request.put("files", all);
        Driver.ask(request);
        clean(context);
    }

    public void abortJob(JobContext context) {
        // An exception here would hide the cause of the job's failure.
        try {
            Map request = request("abort");
            request.put("files", staged);
            Driver.ask(request);
            clean(context);
        } catch (RuntimeException e) {
            LoggerFactory.getLogger(getClass()).warn("job " + jobId + " could not be aborted", e);
        }
    }

    // tasks

    public void setupTask(TaskAttemptContext context) {
        files = new TaskFiles(directory);
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
            return new FileCommitProtocol.TaskCommitMessage(files.finish(context.getConfiguration()));
        } catch (IOException e) {
            throw new CommitException("the task's files could not be completed: " + e.getMessage(), e);
        }
    }

    public void abortTask(TaskAttemptContext context) {
        try {
            files.drop(context.getConfiguration());
        } catch (IOException e) {
            LoggerFactory.getLogger(getClass()).warn("files of a failed task are left for gc", e);
        }
    }

    // private

    private Map request(String call) {
        Map request = new HashMap();
        request.put("call", call);
        request.put("job", jobId);
        return request;
    }

    /** Returns the settings of the session, without those of the write. */
    private static Map sessionOptions() {
        Map all = new HashMap();
        for (Iterator i = SQLConf.get().getAllConfs().iterator(); i.hasNext();) {
            Tuple2 each = (Tuple2) i.next();
            all.put(each._1(), each._2());
        }
        return committerOptions(all);
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

    private Path qualified(Configuration conf) {
        try {
            Path root = new Path(path);
            return root.getFileSystem(conf).makeQualified(root);
        } catch (IOException e) {
            throw new CommitException("no access to " + path + ": " + e.getMessage(), e);
        }
    }

    /** Removes the files of unsuccessful attempts. If this fails, gc removes them. */
    private void clean(JobContext context) {
        if (temporary) {
            try {
                Path rest = new Path(directory);
                rest.getFileSystem(context.getConfiguration()).delete(rest, true);
            } catch (Exception e) {
                LoggerFactory.getLogger(getClass()).warn(directory + " is left for gc", e);
            }
        }
    }

    private static CommitException elsewhere(String where) {
        return new CommitException(
            "commitlog.errors.NotSupported: " + where + " is not below the output: partitions with a"
            + " location of their own cannot be committed with it. Nothing was changed; write them as an"
            + " output of their own", null);
    }
}
