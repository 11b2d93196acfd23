package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.streaming.Offset;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A source of a running query. Spark calls it in the thread of the query. */
final class IngestSource implements Source, SupportsTriggerAvailableNow {
    private static final long MIN_VECTOR_ROWS = 128;
    private static final long MIN_ROW_BYTES = 8; // estimated, compressed

    final SparkSession session;
    /** The session of the scans, whose settings decide how files become partitions. */
    final SparkSession scans;
    final StructType columns;
    /** The answer to ingest.check. */
    final JsonNode options;

    private final Map request;
    private final SQLConf settings; // of the scans
    private final long mostBytes; // of a partition
    /** The setting for the rows of a vector. Null if the format has none, or if the session sets it. */
    private final String vectorRows;
    private final long maxVectorRows;
    private boolean finite = false;
    private String report; // null before the first offset

    IngestSource(SparkSession session, StructType columns, Map request, JsonNode options) {
        this.session = session;
        this.columns = columns;
        this.request = request;
        this.options = options;
        scans = (SparkSession) Scala.call(session, "cloneSession");
        Map set = Scala.map(session.conf().getAll());
        set(set, "spark.sql.files.openCostInBytes", options.get("open_cost"));
        set(set, "spark.sql.files.maxPartitionBytes", options.get("partition_bytes"));
        scans.conf().set("spark.sql.files.ignoreCorruptFiles", "false");
        scans.conf().set("spark.sql.files.ignoreMissingFiles", "false");
        settings = (SQLConf) Scala.call(Scala.call(scans, "sessionState"), "conf");
        mostBytes = settings.filesMaxPartitionBytes();
        String format = options.get("format").asText();
        String name = "spark.sql." + format + ".columnarReaderBatchSize";
        boolean columnar = format.equals("parquet") || format.equals("orc");
        vectorRows = columnar && !set.containsKey(name) ? name : null;
        maxVectorRows = vectorRows == null ? 0 : Long.parseLong(scans.conf().get(vectorRows));
    }

    /**
     * Sets the sizes of partitions and vectors for the next batch; `largest` is the size of its largest file.
     *
     * Partitions are filled evenly. With the largest ones, the last tasks would leave cores without work: five tasks
     * take as long as six on two cores. So there are as many for each core, as few as the largest ones allow.
     *
     * Vectors are as long as the largest file needs. Spark allocates new ones for each file, of 4,096 rows by default.
     */
    void fit(long files, long bytes, long largest) {
        double total = bytes + (double) files * settings.filesOpenCostInBytes(); // as Spark counts
        double cores = Math.max(1, session.sparkContext().defaultParallelism());
        double partitions = cores * Math.max(1, Math.ceil(total / cores / mostBytes));
        long each = Math.max(1, Math.min(mostBytes, (long) Math.ceil(total / partitions)));
        scans.conf().set("spark.sql.files.maxPartitionBytes", Long.toString(each));
        if (vectorRows != null) {
            long rows = Math.min(maxVectorRows, Math.max(MIN_VECTOR_ROWS, largest / MIN_ROW_BYTES));
            scans.conf().set(vectorRows, Long.toString(rows));
        }
    }

    private void set(Map present, String name, JsonNode value) {
        if (!value.isNull() && !present.containsKey(name)) {
            scans.conf().set(name, value.asText());
        }
    }

    public StructType schema() {
        return columns;
    }

    public void prepareForTriggerAvailableNow() {
        finite = true;
    }

    public Option getOffset() {
        throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) replaces it");
    }

    /** Returns the next offset. The agent applies the limits of the source. */
    public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
            org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
        Map asked = asking("ingest.latest_offset");
        asked.put("start", start == null ? null : start.json());
        asked.put("finite", Boolean.valueOf(finite));
        JsonNode answer = Agent.askForSource(asked);
        report = answer.get("report").asText();
        return answer.get("offset").isNull() ? null : new Text(answer.get("offset").asText());
    }

    public org.apache.spark.sql.connector.read.streaming.Offset reportLatestOffset() {
        return report == null ? null : new Text(report);
    }

    public Dataset getBatch(Option start, Offset end) {
        return new IngestBatch(this, start.isDefined() ? ((Offset) start.get()).json() : null, end.json()).rows();
    }

    /** Called when Spark has logged the batch after the one that ends with `end`. */
    public void commit(Offset end) {
        committed(end.json());
    }

    /** The same, for sources of the other version. */
    public void commit(org.apache.spark.sql.connector.read.streaming.Offset end) {
        committed(end.json());
    }

    /** Lets the agent clean. Otherwise a request for the offset after `end` implies that `end` is done. */
    private void committed(String end) {
        if (cleans()) {
            Map asked = asking("ingest.commit");
            asked.put("end", end);
            Agent.askForSource(asked);
        }
    }

    private boolean cleans() {
        return options.get("cleans").asBoolean();
    }

    public org.apache.spark.sql.connector.read.streaming.Offset initialOffset() {
        throw new UnsupportedOperationException("Spark does not call it for such a source");
    }

    public org.apache.spark.sql.connector.read.streaming.Offset deserializeOffset(String json) {
        return new Text(json);
    }

    /** Ends the cleaning after its current step: else the next run would have to begin again. */
    public void stop() {
        Agent.tell(asking("ingest.stop"), cleans());
    }

    public String toString() {
        return "commitlog_ingest_spark[" + options.get("scheme").asText() + ":" + options.get("root").asText() + "]";
    }

    /** Returns the answer to a request about the batch between two offsets. */
    JsonNode ask(String call, String start, String end) {
        Map asked = asking(call);
        asked.put("start", start);
        asked.put("end", end);
        return Agent.askForSource(asked);
    }

    private Map asking(String call) {
        Map asked = new HashMap(request);
        asked.put("call", call);
        return asked;
    }

    /** Returns the options of Spark's reader. */
    Map readerOptions() {
        Map found = new HashMap();
        for (Iterator i = options.get("options").fields(); i.hasNext();) {
            Map.Entry entry = (Map.Entry) i.next();
            found.put(entry.getKey(), ((JsonNode) entry.getValue()).asText());
        }
        return found;
    }

    /** An offset, as the agent spells it. */
    private static final class Text extends Offset {
        private final String json;

        Text(String json) {
            this.json = json;
        }

        public String json() {
            return json;
        }
    }
}
