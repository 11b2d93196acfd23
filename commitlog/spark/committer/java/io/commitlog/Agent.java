package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.api.python.PythonUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * The commit agent of this driver: the Python process that commits its jobs. Thread-safe.
 *
 * It is started once, by CommitlogPlugin or by the first job. If it dies, the next request starts another
 * one. It keeps nothing that matters: jobs bring their state with each request.
 */
final class Agent {
    private static final Logger LOG = LoggerFactory.getLogger(Agent.class);
    private static final int TRIES = 3;
    private static final long START_SECONDS = 120;
    private static final long ABORT_SECONDS = 60; // after an interrupt
    private static final String PYTHON = "spark.commitlog.python";
    // The last places of the path are for a PySpark that only Spark's own distribution has. The working
    // directory, which Python would put first, does not count.
    private static final String PROGRAM =
        "import sys; sys.version_info < (3, 11) and sys.exit('commitlog needs Python 3.11 or newer, and this"
        + " is ' + sys.version); sys.path = [p for p in sys.path if p] + sys.argv[1:];"
        + " from commitlog.spark.committer import agent; agent.main()";

    private static final Object LOCK = new Object(); // not held while a process starts or answers
    private static AgentProcess current;
    private static Start starting; // null if none is under way
    private static int restarts = 0; // in a row, without an answer to a request of a job
    private static final Map jobs = new LinkedHashMap(); // states of the jobs under way, by their attempts
    private static int asking = 0; // requests of jobs without an answer
    private static boolean stopping = false; // Spark stops; jobs under way may still have to be aborted
    private static SparkConf known; // settings of the last driver

    private Agent() {}

    /** Starts the agent in another thread, if it is not running. A failure is logged; the next job has it. */
    static void startInBackground(SparkConf conf) {
        synchronized (LOCK) {
            known = conf;
            stopping = false;
            underWay(conf);
        }
    }

    /**
     * Ends the agent when no job is under way, and at once if it is starting: callers that wait for it fail.
     * A later request starts another one.
     */
    static void stop() {
        AgentProcess unfinished = null;
        synchronized (LOCK) {
            stopping = true;
            endIfStopped();
            if (jobs.isEmpty() && starting != null) {
                unfinished = starting.process;
                starting.end(null, new NotStarted("commitlog.errors.Unavailable",
                    "Spark was stopped while the commit agent started", "Nothing was written"));
            }
        }
        if (unfinished != null) {
            unfinished.kill();
        }
    }

    private static void endIfStopped() {
        if (stopping && jobs.isEmpty() && asking == 0 && current != null) {
            AgentProcess agent = current;
            current = null;
            agent.close();
        }
    }

    /**
     * Sends a request of a job and returns the answer. Throws CommitException with an error of the agent.
     *
     * An interrupt ends it, as Spark interrupts the threads of statements that are cancelled. A job that was about
     * to begin is aborted then. But Spark aborts jobs in such threads: an abort is sent, and waited for.
     */
    static JsonNode ask(Map request) {
        String call = (String) request.get("call");
        Patience patience = Patience.untilInterrupted("abort".equals(call) ? ABORT_SECONDS : 0);
        synchronized (LOCK) {
            asking++;
        }
        boolean left = false;
        JsonNode answer = null;
        try {
            answer = ask(request, patience);
            return answer;
        } catch (TimeoutException e) {
            left = true;
            if ("begin".equals(call)) {
                throw new CommitException("commitlog.errors.JobAborted: interrupted while the job began."
                    + " Nothing was written", null);
            }
            throw unknown("abort".equals(call)
                ? "the commit agent still aborts the job, " + ABORT_SECONDS + " seconds after an interrupt"
                : "interrupted while the commit agent worked");
        } finally {
            if (!left) {
                over(request, answer);
            }
            patience.restore();
        }
    }

    /**
     * Sends a request of a streaming source and returns the answer. Throws CommitException with an error of the
     * agent. An interrupt, by which Spark stops a query, ends it as Spark expects.
     */
    static JsonNode askForSource(Map request) {
        Patience patience = Patience.untilInterrupted(0);
        synchronized (LOCK) {
            asking++;
        }
        boolean left = false;
        try {
            return ask(request, patience);
        } catch (TimeoutException e) {
            left = true;
            throw new UncheckedIOException(new InterruptedIOException("interrupted while the commit agent worked"));
        } finally {
            if (!left) {
                over(request, null);
            }
            patience.restore();
        }
    }

    /** Sends a request to the agent if it runs; waits for its end, if wanted, until an interrupt. */
    static void tell(Map request, boolean waits) {
        AgentProcess agent;
        synchronized (LOCK) {
            asking++;
            agent = current;
        }
        Patience patience = Patience.untilInterrupted(0);
        try {
            if (agent != null && agent.isRunning()) {
                AgentProcess.Call sent = agent.send(request);
                if (waits) {
                    agent.answer(sent, patience);
                }
            }
        } catch (IOException e) {
            LOG.debug("the commit agent ended", e);
        } catch (TimeoutException e) {
            LOG.debug("interrupted while the commit agent worked", e);
        } catch (CommitException e) {
            LOG.warn("the commit agent failed: {}", e.getMessage());
        } finally {
            over(request, null);
            patience.restore();
        }
    }

    /** Records the end of a request: its answer, or null if there is none. */
    private static void over(Map request, JsonNode answer) {
        Object call = request.get("call");
        JsonNode state = (JsonNode) request.get("state");
        if ("begin".equals(call) && answer != null) {
            state = answer.get("state");
        }
        String attempt = state == null ? null : state.get("job").get("attempt").asText();
        synchronized (LOCK) {
            asking--;
            if (answer != null && "begin".equals(call)) {
                jobs.put(attempt, state); // another agent sends its heartbeats if this one dies
            } else if (answer != null || "abort".equals(call)) {
                jobs.remove(attempt);
            }
            endIfStopped();
        }
    }

    /**
     * Takes the answer to a request whose thread has gone; null if there is none. It does not block.
     *
     * A job that has begun is aborted: else its heartbeats would go on as long as the agent lives, and no
     * recovery would take it for dead.
     */
    static void unclaimed(final AgentProcess agent, final Map request, final JsonNode answer) {
        Object call = request.get("call");
        if ("begin".equals(call) && answer != null) {
            daemon(new Runnable() {
                public void run() {
                    abort(agent, answer.get("state"));
                    over(request, null);
                }
            }, "commitlog-agent-abort");
        } else if (!"hello".equals(call) && !"resume".equals(call) && !"ingest.stop".equals(call)) {
            over(request, answer);
        }
    }

    private static void abort(AgentProcess agent, JsonNode state) {
        Map request = new HashMap();
        request.put("call", "abort");
        request.put("state", state);
        request.put("files", new ArrayList());
        try {
            agent.ask(request, Patience.untilInterrupted(0));
        } catch (IOException e) {
            LOG.debug("the commit agent ended, and with it the heartbeats of an interrupted job", e);
        } catch (Exception e) {
            LOG.warn("an interrupted job could not be aborted: {}", e.getMessage());
        }
    }

    private static void daemon(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static JsonNode ask(Map request, Patience patience) throws TimeoutException {
        String call = (String) request.get("call");
        String cause = null;
        for (int i = 1;; i++) {
            AgentProcess agent;
            try {
                agent = running(conf(), patience);
            } catch (NotStarted e) {
                if (i == 1) {
                    throw new CommitException(e.text(call), null);
                }
                throw lost(call, cause + "\nNo other one was started: " + e.getMessage());
            }
            try {
                JsonNode answer = agent.ask(request, patience);
                synchronized (LOCK) {
                    restarts = 0;
                }
                return answer;
            } catch (IOException e) {
                cause = "the commit agent ended during " + call + ", with " + agent.epitaph();
                if (i == TRIES) {
                    throw lost(call, cause);
                }
                LOG.warn("{}; another one settles the outcome", cause);
                request.put("again", Boolean.TRUE);
            }
        }
    }

    // Python's error_of reads the text of the last cause in Spark's exception: errors of the agent have none.
    private static CommitException unknown(String problem) {
        return new CommitException("commitlog.errors.OutcomeUnknown: " + problem
            + "\nRun the job again with the same job id, which is committed once", null);
    }

    /** Returns the error for a request whose outcome is unknown. Those of sources can be repeated. */
    private static CommitException lost(String call, String problem) {
        return call.startsWith("ingest.") ? new CommitException("commitlog.errors.Unavailable: " + problem
            + "\nStart the query again, which continues", null) : unknown(problem);
    }

    /** Starts another agent, if jobs under way need its heartbeats. */
    static void ended(AgentProcess agent) {
        boolean needed;
        synchronized (LOCK) {
            if (agent != current) {
                return; // it was stopped
            }
            current = null;
            needed = !jobs.isEmpty() && ++restarts < TRIES;
        }
        if (needed) {
            LOG.warn("the commit agent ended, with {}; another one sends the heartbeats of running jobs",
                agent.epitaph());
            SparkConf conf = conf();
            synchronized (LOCK) {
                underWay(conf);
            }
        }
    }

    /** Returns the settings of the driver. A job may be aborted after Spark has stopped. */
    private static SparkConf conf() {
        Option active = SparkContext$.MODULE$.getActive();
        synchronized (LOCK) {
            if (active.isDefined()) {
                known = ((SparkContext) active.get()).conf();
            }
            return known;
        }
    }

    /** Returns the agent; waits for it, if it is starting. */
    private static AgentProcess running(SparkConf conf, Patience patience) throws NotStarted {
        synchronized (LOCK) {
            Start start = underWay(conf);
            if (start == null) {
                return current;
            }
            start.waiting++;
            try {
                while (!start.over) {
                    patience.await(LOCK);
                }
            } catch (TimeoutException e) {
                throw new NotStarted("commitlog.errors.Unavailable",
                    "interrupted while the commit agent started", "Nothing was written");
            } finally {
                start.waiting--;
            }
            if (start.failure != null) {
                throw start.failure;
            }
            return start.agent;
        }
    }

    /** Returns null if the agent runs, or else its start, which all callers share. LOCK is held. */
    private static Start underWay(SparkConf conf) {
        if (current != null && current.isRunning()) {
            return null;
        }
        if (starting == null) {
            Start start = new Start(conf);
            daemon(start, "commitlog-agent-start");
            starting = start;
        }
        return starting;
    }

    /** The start of one agent, in a thread of its own. LOCK guards its fields. */
    private static final class Start implements Runnable {
        final SparkConf conf;
        AgentProcess process; // null before there is one
        int waiting = 0; // callers
        boolean over = false;
        AgentProcess agent; // the result
        NotStarted failure; // or the reason why there is none

        Start(SparkConf conf) {
            this.conf = conf;
        }

        public void run() {
            AgentProcess started = null;
            NotStarted failed = null;
            try {
                started = start(this);
                resume(started);
            } catch (NotStarted e) {
                failed = e;
            } catch (Throwable e) {
                LOG.warn("the commit agent could not be started", e);
                failed = new NotStarted("commitlog.errors.Unavailable",
                    "the commit agent could not be started: " + e, "Nothing was written");
            }
            synchronized (LOCK) {
                if (!over) {
                    end(started, failed);
                }
            }
            if (started != null && !started.isRunning()) {
                ended(started); // it ended before it became the agent
            }
        }

        /** Takes the process; returns false if the start is over. */
        boolean takes(AgentProcess created) {
            synchronized (LOCK) {
                process = created;
                return !over;
            }
        }

        /** Ends the start with a result; LOCK is held. A failure is logged if no caller has it. */
        void end(AgentProcess started, NotStarted failed) {
            over = true;
            agent = started;
            failure = failed;
            starting = null;
            if (started != null) {
                current = started;
            } else if (waiting == 0 && !stopping) {
                LOG.warn("the commit agent could not be started; jobs that write will fail: {}",
                    failed.text("begin"));
            }
            LOCK.notifyAll();
            endIfStopped();
        }
    }

    /** The reason why there is no agent. Several callers may get the same one. */
    private static final class NotStarted extends Exception {
        final String kind;
        final String advice;

        /** `kind` is the name of the error in Python; `advice` is for a job that is about to begin. */
        NotStarted(String kind, String problem, String advice) {
            super(problem);
            this.kind = kind;
            this.advice = advice;
        }

        /** Returns the text of the error for a request that was not sent. */
        String text(String call) {
            String rest = advice;
            if ("commit".equals(call)) {
                rest = "The job is not committed. Run it again";
            } else if ("abort".equals(call)) {
                rest = "The job is left for recover, which aborts it";
            }
            return kind + ": " + getMessage() + (getMessage().indexOf('\n') < 0 ? ". " : "\n") + rest;
        }
    }

    /** Lets an agent send the heartbeats of the jobs under way. Later requests may rely on it. */
    private static void resume(AgentProcess started) {
        List states;
        synchronized (LOCK) {
            states = new ArrayList(jobs.values());
        }
        Patience patience = Patience.limited(START_SECONDS);
        List sent = new ArrayList();
        try {
            for (Object state : states) {
                Map request = new HashMap();
                request.put("call", "resume");
                request.put("state", state);
                sent.add(started.send(request));
            }
            for (Object call : sent) {
                try {
                    started.answer((AgentProcess.Call) call, patience);
                } catch (CommitException e) {
                    LOG.warn("the heartbeats of a job could not be resumed: {}", e.getMessage());
                }
            }
        } catch (IOException e) {
            LOG.warn("the heartbeats of jobs could not be resumed: {}", e.getMessage());
        } catch (TimeoutException e) {
            LOG.warn("the heartbeats of jobs were not resumed within {} seconds", Long.valueOf(START_SECONDS));
        }
    }

    private static AgentProcess start(Start start) throws NotStarted {
        SparkConf conf = start.conf;
        String python = interpreter(conf);
        String advice = "Set " + PYTHON + " to a Python 3.11 or newer with commitlog and pyarrow; nothing was"
            + " written";
        List command = new ArrayList();
        command.add(python);
        command.add("-c");
        command.add(PROGRAM);
        String[] path = PythonUtils.sparkPythonPath().split(File.pathSeparator);
        for (int i = 0; i < path.length; i++) {
            command.add(path[i]);
        }
        AgentProcess agent;
        try {
            agent = new AgentProcess(command, submittedFiles(conf));
        } catch (IOException e) {
            throw new NotStarted("commitlog.errors.ConfigurationError", "the commit agent could not be"
                + " started with the interpreter " + python + " (" + e.getMessage() + ")", advice);
        }
        if (!start.takes(agent)) {
            agent.kill();
        }
        Map hello = new HashMap();
        hello.put("call", "hello");
        try {
            agent.ask(hello, Patience.limited(START_SECONDS));
        } catch (IOException e) {
            agent.close();
            throw new NotStarted("commitlog.errors.ConfigurationError", "the commit agent ended at its"
                + " start, with the interpreter " + python + " and " + agent.epitaph(), advice);
        } catch (TimeoutException e) {
            agent.kill();
            throw new NotStarted("commitlog.errors.Unavailable", "the commit agent did not answer within "
                + START_SECONDS + " seconds, with the interpreter " + python + "; see " + PYTHON + ". It was"
                + " killed: " + agent.epitaph(), "Nothing was written");
        } catch (CommitException e) {
            agent.kill();
            String[] parts = e.getMessage().split(": ", 2); // the name of the error, and its text
            throw new NotStarted(parts[0], parts[1] + " (the commit agent, with the interpreter " + python
                + "; see " + PYTHON + ")", "Nothing was written");
        }
        return agent;
    }

    static String interpreter(SparkConf conf) {
        String[] settings = new String[] {PYTHON, "spark.pyspark.driver.python", "spark.pyspark.python"};
        for (int i = 0; i < settings.length; i++) {
            if (conf.contains(settings[i])) {
                return conf.get(settings[i]);
            }
        }
        String[] variables = new String[] {"PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"};
        for (int i = 0; i < variables.length; i++) {
            String value = System.getenv(variables[i]);
            // A notebook is no interpreter.
            if (value != null && value.length() > 0 && !value.matches(".*(jupyter|ipython)[^/]*")) {
                return value;
            }
        }
        return "python3";
    }

    /** Returns the files of spark-submit's --py-files that are on this host, as a PYTHONPATH. */
    private static String submittedFiles(SparkConf conf) {
        StringBuilder path = new StringBuilder();
        String[] files = conf.get("spark.submit.pyFiles", "").split(",");
        for (int i = 0; i < files.length; i++) {
            String name = files[i].startsWith("file:") ? URI.create(files[i]).getPath() : files[i];
            if (name.length() > 0 && new File(name).exists()) {
                path.append(path.length() == 0 ? "" : File.pathSeparator).append(name);
            }
        }
        return path.toString();
    }
}
