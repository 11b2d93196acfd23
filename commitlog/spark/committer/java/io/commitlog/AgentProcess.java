package io.commitlog;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One process of the commit agent, commitlog.spark.committer.agent, which has the protocol. Thread-safe.
 *
 * A thread reads its answers, another one logs what it writes to its standard error. Lines of its standard output
 * before its first answer are logged, too: scripts that set up an environment print greetings.
 */
final class AgentProcess implements Runnable {
    /** Version of the requests and answers. */
    static final int PROTOCOL = 1;

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Logger LOG = LoggerFactory.getLogger("io.commitlog.Agent");
    private static final int KEPT_LINES = 20;
    private static final int GREETINGS = 200; // lines at most
    private static final int SHOWN = 200; // characters of such a line

    private final Process process;
    private final OutputStream requests;
    private final Map calls = new HashMap(); // without an answer, by request id
    private final LinkedList lastLines = new LinkedList();
    private final Thread logger;
    private long lastId = 0;
    private boolean ended = false;

    // Of the thread that reads.
    private boolean answered = false; // it has no secrets before
    private int greetings = 0;

    /** Starts the process. `pythonPath` is added to its PYTHONPATH. */
    AgentProcess(List command, String pythonPath) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(command);
        if (pythonPath.length() > 0) {
            String present = (String) builder.environment().get("PYTHONPATH");
            boolean alone = present == null || present.length() == 0;
            builder.environment().put(
                "PYTHONPATH", alone ? pythonPath : pythonPath + File.pathSeparator + present);
        }
        process = builder.start();
        requests = process.getOutputStream();
        logger = daemon(new ErrorLines(), "commitlog-agent-log");
        daemon(this, "commitlog-agent");
    }

    private static Thread daemon(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Reads the answers until the process ends. */
    public void run() {
        try {
            BufferedReader lines =
                new BufferedReader(new InputStreamReader(process.getInputStream(), "UTF-8"));
            String line = lines.readLine();
            while (line != null && take(line)) {
                line = lines.readLine();
            }
        } catch (IOException e) {
            LOG.warn("the answers of the commit agent could not be read", e);
        } finally {
            if (waitFor(10) == null) { // it has closed its output only
                kill();
            }
            List left = new ArrayList();
            synchronized (calls) {
                ended = true;
                calls.notifyAll();
                for (Object call : calls.values()) {
                    if (((Call) call).left) {
                        left.add(call);
                    }
                }
            }
            for (Object call : left) {
                Agent.unclaimed(this, ((Call) call).request, null);
            }
            Agent.ended(this);
        }
    }

    /**
     * Takes a line of the standard output; returns false if it is no answer, which ends the process.
     *
     * An answer may have secrets, and so may the message of Jackson, which quotes it on some Sparks: neither
     * is logged. Other lines before the first answer are.
     */
    private boolean take(String line) {
        JsonNode answer = null;
        String kind = "without an id";
        try {
            answer = JSON.readTree(line);
        } catch (JsonProcessingException e) {
            kind = "that is not JSON";
        }
        if (answer == null || !answer.has("id")) {
            if (!answered && greetings++ < GREETINGS) {
                log(line.length() > SHOWN ? line.substring(0, SHOWN) + "..." : line);
                return true;
            }
            String problem = "it wrote a line of " + line.length() + " characters " + kind
                + " in place of an answer";
            log("the commit agent is ended: " + problem);
            kill();
            return false;
        }
        Long id = Long.valueOf(answer.get("id").asLong());
        Call call;
        synchronized (calls) {
            call = (Call) calls.remove(id);
            if (call != null) {
                answered = true;
                call.answer = answer;
                calls.notifyAll();
            }
        }
        if (call != null && call.left) {
            Agent.unclaimed(this, call.request, answer.get("answer"));
        }
        return true;
    }

    /**
     * Sends a request and returns its answer.
     *
     * Throws IOException if the process ended before it answered: the request may have had its effect.
     * Throws CommitException with an error of the agent. Throws TimeoutException if the patience ended before;
     * Agent.unclaimed gets the answer then.
     */
    JsonNode ask(Map request, Patience patience) throws IOException, TimeoutException {
        return answer(send(request), patience);
    }

    /** Sends a request; `answer` waits for its answer. */
    Call send(Map request) throws IOException {
        Call call = new Call(request);
        Map sent = new HashMap(request);
        synchronized (calls) {
            Long id = Long.valueOf(++lastId);
            sent.put("id", id);
            calls.put(id, call);
        }
        sent.put("version", Integer.valueOf(PROTOCOL));
        byte[] line = (JSON.writeValueAsString(sent) + "\n").getBytes("UTF-8");
        try {
            synchronized (requests) {
                requests.write(line);
                requests.flush();
            }
        } catch (IOException e) {
            awaitEnd();
            throw e;
        }
        return call;
    }

    /** Returns the answer to a request that was sent; throws as `ask`. */
    JsonNode answer(Call call, Patience patience) throws IOException, TimeoutException {
        synchronized (calls) {
            try {
                while (call.answer == null) {
                    if (ended) {
                        throw new IOException("the commit agent has ended");
                    }
                    patience.await(calls);
                }
            } catch (TimeoutException e) {
                call.left = true;
                throw e;
            }
        }
        if (call.answer.has("error")) {
            throw new CommitException(call.answer.get("error").asText(), null);
        }
        return call.answer.get("answer");
    }

    /** A request that was sent. The lock of `calls` guards its fields. */
    static final class Call {
        final Map request;
        JsonNode answer; // null before there is one
        boolean left = false; // nobody waits for the answer any more

        Call(Map request) {
            this.request = request;
        }
    }

    /** Waits until the lines of a process that takes no requests are read: it has ended, or is about to. */
    private void awaitEnd() {
        Patience patience = Patience.limited(15);
        synchronized (calls) {
            try {
                while (!ended) {
                    patience.await(calls);
                }
            } catch (TimeoutException e) {
                LOG.debug("the commit agent takes no requests, and does not end", e);
            }
        }
        patience.restore();
    }

    /** Returns whether the process can take requests. */
    boolean isRunning() {
        synchronized (calls) {
            return !ended;
        }
    }

    /** Returns how the process ended, with the last lines that were logged. */
    String epitaph() {
        Integer code = waitFor(5);
        try {
            logger.join(1000); // a child of the process may keep its standard error open
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        StringBuilder text = new StringBuilder(code == null ? "no exit code" : "exit code " + code);
        synchronized (lastLines) {
            for (Object line : lastLines) {
                text.append("\n    ").append(line);
            }
        }
        return text.toString();
    }

    /** Ends the process: it ends with its standard input. Its standard error can still be read. */
    void close() {
        try {
            requests.close();
        } catch (IOException e) {
            LOG.debug("the last request did not reach the commit agent", e); // it is closed all the same
        }
    }

    /** Returns the exit code, or null if the process does not end within `seconds`. */
    private Integer waitFor(long seconds) {
        try {
            boolean over = process.waitFor(seconds, TimeUnit.SECONDS);
            return over ? Integer.valueOf(process.exitValue()) : null;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return null;
        }
    }

    /** Kills the process, whatever it does. Lines of its standard error may be lost. */
    void kill() {
        process.destroyForcibly();
    }

    /** Logs a line, and keeps it for the error if the process ends. */
    private void log(String line) {
        synchronized (lastLines) {
            lastLines.add(line);
            if (lastLines.size() > KEPT_LINES) {
                lastLines.removeFirst();
            }
        }
        LOG.warn(line);
    }

    /** Logs the lines of the standard error. */
    private final class ErrorLines implements Runnable {
        public void run() {
            try {
                InputStream errors = process.getErrorStream();
                BufferedReader lines = new BufferedReader(new InputStreamReader(errors, "UTF-8"));
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    log(line);
                }
            } catch (IOException e) {
                LOG.debug("the standard error of the commit agent is closed", e);
            }
        }
    }
}
