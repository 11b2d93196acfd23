package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;

/** The way to the Python process that drives this Spark application. Thread-safe. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static volatile Handler handler;

    private Driver() {}

    /** Hands job commits over to Python from now on; null: no more. */
    public static void attach(Handler handler) {
        Driver.handler = handler;
    }

    /** Returns what Python answers. Throws CommitException with the name and text of its error. */
    static JsonNode ask(Map request) {
        Handler asked = handler;
        if (asked == null) {
            throw new CommitException(
                "commitlog.errors.ConfigurationError: spark.sql.sources.commitProtocolClass names"
                + " commitlog's committer, but no Python driver is attached to it: start the session with"
                + " commitlog.spark.configure(builder), or call commitlog.spark.attach(spark). Spark"
                + " Connect and drivers without Python cannot use it: unset the setting there", null);
        }
        JsonNode answer;
        try {
            answer = JSON.readTree(asked.call(JSON.writeValueAsString(request)));
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
