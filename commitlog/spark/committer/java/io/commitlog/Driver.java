package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;

/** Sends requests to the Python process that is the driver of this application. Thread-safe. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static volatile Handler handler;

    private Driver() {}

    /** Sets the handler of requests; null removes it. */
    public static void attach(Handler handler) {
        Driver.handler = handler;
    }

    /** Sends a request and returns the answer. Throws CommitException with an error of Python. */
    static JsonNode ask(Map request) {
        Handler current = handler;
        if (current == null) {
            throw new CommitException(
                "commitlog.errors.ConfigurationError: spark.sql.sources.commitProtocolClass names"
                + " commitlog's committer, but no Python driver is attached to it: start the session with"
                + " commitlog.spark.configure(builder), or call commitlog.spark.attach(spark). Spark"
                + " Connect and drivers without Python cannot use it: unset the setting there", null);
        }
        JsonNode answer;
        try {
            answer = JSON.readTree(current.call(JSON.writeValueAsString(request)));
        } catch (Exception e) {
            throw new CommitException(
                "commitlog.errors.OutcomeUnknown: the Python driver did not answer to "
                + request.get("call") + ": " + e.getMessage(), e);
        }
        if (answer.has("error")) {
            throw new CommitException(answer.get("error").asText(), null);
        }
        return answer;
    }
}
