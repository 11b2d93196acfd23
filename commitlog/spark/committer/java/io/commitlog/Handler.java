package io.commitlog;

/** The handler of requests. Python implements it: commitlog.spark.committer.bridge.Committer. */
public interface Handler {
    /** Handles a request in JSON. Returns the answer in JSON, with the member "error" after a failure. */
    String call(String request);
}
