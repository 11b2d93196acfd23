package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
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
    private static final String PYTHON = "spark.commitlog.python";
    // The last places of the path are for a PySpark that only Spark's own distribution has. The working
    // directory, which Python would put first, does not count.
    private static final String PROGRAM =
        "import sys; sys.version_info < (3, 11) and sys.exit('commitlog needs Python 3.11 or newer, and this"
        + " is ' + sys.version); sys.path = [p for p in sys.path if p] + sys.argv[1:];"
        + " from commitlog.spark.committer import agent; agent.main()";

    private static final Object LOCK = new Object();
    private static AgentProcess current;
    private static int restarts = 0; // in a row, without an answer to a request of a job
    private static final Map jobs = new LinkedHashMap(); // states of the jobs under way
    private static boolean stopping = false; // Spark stops; jobs under way may still have to be aborted
    private static SparkConf known; // settings of the last driver

    private Agent() {}

    /** Starts the agent in another thread, if it is not running. A failure is logged; the next job has it. */
    static void startInBackground(SparkConf conf) {
        synchronized (LOCK) {
            known = conf;
            stopping = false;
        }
        startThread(conf);
    }

    private static void startThread(final SparkConf conf) {
        Thread thread = new Thread(new Runnable() {
            public void run() {
                try {
                    running(conf);
                } catch (RuntimeException e) {
                    LOG.warn("the commit agent could not be started; jobs that write will fail: {}",
                        e.getMessage());
                }
            }
        }, "commitlog-agent-start");
        thread.setDaemon(true);
        thread.start();
    }

    /** Ends the agent when no job is under way. A later request starts another one. */
    static void stop() {
        synchronized (LOCK) {
            stopping = true;
            endIfStopped();
        }
    }

    private static void endIfStopped() {
        if (stopping && jobs.isEmpty() && current != null) {
            AgentProcess agent = current;
            current = null;
            agent.close();
        }
    }

    /** Sends a request and returns the answer. Throws CommitException with an error of the agent. */
    static JsonNode ask(Map request) {
        for (int i = 1;; i++) {
            AgentProcess agent = running(conf());
            try {
                JsonNode answer = agent.ask(request, 0);
                synchronized (LOCK) {
                    restarts = 0;
                }
                return answer;
            } catch (IOException e) {
                String cause = "the commit agent ended during " + request.get("call") + ", with "
                    + agent.epitaph();
                if (i == TRIES) {
                    throw new CommitException("commitlog.errors.OutcomeUnknown: " + cause + "\nRun the job"
                        + " again with the same job id, which is committed once", e);
                }
                LOG.warn("{}; another one settles the outcome", cause);
                request.put("again", Boolean.TRUE);
            }
        }
    }

    /** Registers a job under way: another agent sends its heartbeats if this one dies. */
    static void register(String job, JsonNode state) {
        synchronized (LOCK) {
            jobs.put(job, state);
        }
    }

    /** Removes a job that has ended. */
    static void unregister(String job) {
        synchronized (LOCK) {
            jobs.remove(job);
            endIfStopped();
        }
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
            startThread(conf());
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

    private static AgentProcess running(SparkConf conf) {
        synchronized (LOCK) {
            if (current == null || !current.isRunning()) {
                AgentProcess started = start(conf);
                for (Object state : jobs.values()) {
                    Map request = new HashMap();
                    request.put("call", "resume");
                    request.put("state", state);
                    try {
                        started.ask(request, START_SECONDS);
                    } catch (Exception e) {
                        LOG.warn("the heartbeats of a job could not be resumed: {}", e.getMessage());
                    }
                }
                current = started;
            }
            return current;
        }
    }

    private static AgentProcess start(SparkConf conf) {
        String python = interpreter(conf);
        String advice = "Set " + PYTHON + " to a Python 3.11 or newer that has commitlog (pip install"
            + " commitlog-store pyarrow); nothing was written";
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
            throw new CommitException("commitlog.errors.ConfigurationError: the commit agent could not be"
                + " started with the interpreter " + python + " (" + e.getMessage() + "). " + advice, e);
        }
        Map hello = new HashMap();
        hello.put("call", "hello");
        try {
            agent.ask(hello, START_SECONDS);
        } catch (IOException e) {
            agent.close();
            throw new CommitException("commitlog.errors.ConfigurationError: the commit agent ended at its"
                + " start, with the interpreter " + python + " and " + agent.epitaph() + "\n" + advice, e);
        } catch (CommitException e) {
            agent.kill();
            throw new CommitException(e.getMessage() + " (the commit agent, with the interpreter " + python
                + "; see " + PYTHON + ")", e);
        }
        return agent;
    }

    private static String interpreter(SparkConf conf) {
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
