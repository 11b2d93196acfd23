package io.commitlog;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.Serializable;
import java.nio.channels.FileChannel;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptID;

/** The files of one task attempt. Not thread-safe. */
final class TaskFiles implements Serializable {
    private final String root;
    private final boolean magic;
    private final List names = new ArrayList();

    /** Creates an empty list of files. All of them will be below the directory `root`, a magic one or not. */
    TaskFiles(String root, boolean magic) {
        this.root = root;
        this.magic = magic;
    }

    /** Adds a file by its name, relative to the root; returns its path. */
    String add(String name) {
        names.add(name);
        return new Path(root, name).toString();
    }

    /** Makes the files durable; returns their names and sizes, and the uploads of magic paths. */
    ArrayList finish(Configuration conf, TaskAttemptID attempt) throws IOException {
        FileSystem fs = new Path(root).getFileSystem(conf);
        ArrayList found = new ArrayList();
        if (magic) {
            return S3A.uploads(fs, root, names, attempt);
        }
        Set directories = new LinkedHashSet();
        for (int i = 0; i < names.size(); i++) {
            String name = (String) names.get(i);
            Path file = new Path(root, name);
            long size;
            try {
                size = fs.getFileStatus(file).getLen();
            } catch (FileNotFoundException e) {
                continue; // some formats write no file if there are no rows
            }
            if (fs instanceof ChecksumFileSystem) {
                // The checksums are in another file, which would stay behind when this one is moved.
                ChecksumFileSystem checked = (ChecksumFileSystem) fs;
                checked.getRawFileSystem().delete(checked.getChecksumFile(file), false);
            }
            if ("file".equals(fs.getUri().getScheme())) {
                sync(file, StandardOpenOption.WRITE);
                Path top = new Path(root);
                for (Path p = file.getParent(); p.depth() >= top.depth(); p = p.getParent()) {
                    directories.add(p);
                }
            }
            Map entry = new HashMap();
            entry.put("name", name);
            entry.put("size", Long.valueOf(size));
            found.add(entry);
        }
        for (Object directory : directories) {
            sync((Path) directory, StandardOpenOption.READ);
        }
        return found;
    }

    /** Removes the files. Uploads of magic paths are left to the end of the job, which lists them. */
    void drop(Configuration conf, TaskAttemptID attempt) throws IOException {
        if (magic) {
            S3A.takeRecords(new Path(root).getFileSystem(conf), attempt);
            return;
        }
        FileSystem fs = new Path(root).getFileSystem(conf);
        for (int i = 0; i < names.size(); i++) {
            fs.delete(new Path(root, (String) names.get(i)), false);
        }
    }

    private static void sync(Path path, OpenOption option) throws IOException {
        FileChannel channel =
            FileChannel.open(Paths.get(path.toUri().getPath(), new String[0]), new OpenOption[] {option});
        try {
            channel.force(true);
        } finally {
            channel.close();
        }
    }
}
