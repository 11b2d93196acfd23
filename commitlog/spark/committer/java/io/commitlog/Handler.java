package io.commitlog;

/** What Python implements: commitlog.spark.committer.bridge.Committer. */
public interface Handler {
    /** Does what the JSON text asks for; the answer is one, too, with "error" in it if it failed. */
    String call(String request);
}
