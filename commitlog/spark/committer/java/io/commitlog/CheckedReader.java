package io.commitlog;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.nio.file.attribute.FileTime;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.JavaConverters;
import scala.runtime.AbstractFunction1;

/**
 * The reader of a format that compares each file with the version that was listed, in the task.
 *
 * It does so when the last row of the file, or of a part of it, was read, before the task ends: so the rows of
 * another version never reach the result of a task that succeeds. That costs one request for each file and part.
 * It trusts that a file does not change to another version and back.
 */
final class CheckedReader extends AbstractFunction1 implements Serializable {
    private final Function1 reader;
    private final HashMap versions; // by the paths of the files' URIs
    private final Broadcast conf;

    CheckedReader(Function1 reader, HashMap versions, SparkSession session, Configuration conf) {
        this.reader = reader;
        this.versions = versions;
        this.conf = JavaSparkContext.fromSparkContext(session.sparkContext())
            .broadcast(new SerializableConfiguration(conf));
    }

    public Object apply(Object part) {
        Path path = ((PartitionedFile) part).toPath();
        String listed = (String) versions.get(path.toUri().getPath());
        Version version = new Version(path, listed, (SerializableConfiguration) conf.value());
        Object rows = null;
        try {
            rows = reader.apply(part);
        } catch (Throwable e) {
            version.fail(e);
        }
        Rows checked = new Rows((Iterator) rows, version);
        TaskContext context = TaskContext.get();
        if (context != null) {
            context.addTaskCompletionListener((TaskCompletionListener) checked);
        }
        return JavaConverters.asScalaIterator(checked);
    }

    /** The rows or batches of a part of a file. An iterator of Java: those of Scala depend on its version. */
    private static final class Rows implements java.util.Iterator, TaskCompletionListener {
        private final Version version;
        private Iterator rows; // null after the last one: a task keeps this object until its end
        private boolean over = false; // compared, or failed

        Rows(Iterator rows, Version version) {
            this.rows = rows;
            this.version = version;
        }

        public boolean hasNext() {
            boolean more = false;
            try {
                more = rows != null && rows.hasNext();
            } catch (Throwable e) {
                over = true;
                version.fail(e);
            }
            if (!more && !over) {
                over = true;
                rows = null;
                version.check();
            }
            return more;
        }

        public Object next() {
            try {
                return rows.next();
            } catch (Throwable e) {
                over = true;
                version.fail(e);
                return null;
            }
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }

        /** Compares a file of which the task needed only the first rows. An exception fails the task. */
        public void onTaskCompletion(TaskContext context) {
            if (!over && !context.isFailed() && !context.isInterrupted()) {
                over = true;
                version.check();
            }
        }
    }

    /** The version of a file that was listed. */
    private static final class Version {
        private final Path path;
        private final String listed;
        private final SerializableConfiguration conf;

        Version(Path path, String listed, SerializableConfiguration conf) {
            this.path = path;
            this.listed = listed;
            this.conf = conf;
        }

        /** Throws CommitException if the file is another one now. */
        void check() {
            CommitException problem = problem();
            if (problem != null) {
                throw problem;
            }
        }

        /** Throws the error of a reader; or CommitException, if the file is another one now. */
        void fail(Throwable error) {
            boolean stopped = error instanceof TaskKilledException || error instanceof InterruptedException
                || error instanceof InterruptedIOException || error instanceof CommitException;
            CommitException problem = stopped || error instanceof Error ? null : problem();
            if (problem == null) {
                Platform.throwException(error);
            }
            LoggerFactory.getLogger(CheckedReader.class).info("a file could not be read", error);
            throw problem;
        }

        private CommitException problem() {
            String now;
            try {
                now = current();
            } catch (FileNotFoundException e) {
                return new CommitException("commitlog.errors.InputMissing: '" + path
                    + "' was listed, but does not exist any more. Start the query again: option missing"
                    + " decides what happens to it", null);
            } catch (IOException e) {
                return new CommitException("commitlog.errors.Unavailable: the version of '" + path
                    + "' cannot be read: " + e, null);
            }
            return now.equals(listed) ? null : new CommitException("commitlog.errors.InputChanged: '" + path
                + "' was version " + listed + " when it was listed, and is " + now + " now. Nothing of it was"
                + " delivered. Start the query again: option changed decides what happens to it", null);
        }

        private String current() throws IOException {
            if ("file".equals(path.toUri().getScheme())) {
                Map found;
                try {
                    found = Files.readAttributes(Paths.get(path.toUri().getPath(), new String[0]),
                        "unix:ino,size,lastModifiedTime", new LinkOption[] {LinkOption.NOFOLLOW_LINKS});
                } catch (NoSuchFileException e) {
                    throw new FileNotFoundException(e.getMessage());
                }
                String inode = Long.toUnsignedString(((Long) found.get("ino")).longValue());
                return inode + "-" + found.get("size") + "-"
                    + ((FileTime) found.get("lastModifiedTime")).to(TimeUnit.MICROSECONDS);
            }
            FileStatus status = path.getFileSystem(conf.value()).getFileStatus(path);
            if (!(status instanceof EtagSource)) {
                throw new CommitException("commitlog.errors.NotSupported: the file system of " + path
                    + " shows no etags: use S3A, or format commitlog_ingest", null);
            }
            String etag = ((EtagSource) status).getEtag();
            return etag == null ? "without an etag" : etag.replace("\"", "");
        }
    }
}
