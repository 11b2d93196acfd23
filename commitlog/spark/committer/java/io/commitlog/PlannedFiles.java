package io.commitlog;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.InterpretedPredicate;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.collection.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * The index of the files of a group in a batch.
 *
 * A proxy, because the types of the interface's results depend on the version of Scala.
 */
final class PlannedFiles implements InvocationHandler {
    private final IngestBatch batch;
    private final int group;
    private final StructType partition;

    private PlannedFiles(IngestBatch batch, int group, StructType partition) {
        this.batch = batch;
        this.group = group;
        this.partition = partition;
    }

    /** Returns the index; `partition` has the columns of the path and of the metadata. */
    static FileIndex index(IngestBatch batch, int group, StructType partition) {
        return (FileIndex) Proxy.newProxyInstance(PlannedFiles.class.getClassLoader(),
            new Class[] {FileIndex.class}, new PlannedFiles(batch, group, partition));
    }

    public Object invoke(Object proxy, Method method, Object[] args) {
        String name = method.getName();
        if (name.equals("listFiles")) {
            return Scala.seq(directories(Scala.list((Seq) args[0])));
        } else if (name.equals("rootPaths")) {
            List roots = new ArrayList();
            roots.add(batch.root());
            return Scala.seq(roots);
        } else if (name.equals("inputFiles")) {
            List files = batch.files(group);
            String[] paths = new String[files.size()];
            for (int i = 0; i < paths.length; i++) {
                paths[i] = ((FileStatus) ((Object[]) files.get(i))[0]).getPath().toUri().toString();
            }
            return paths;
        } else if (name.equals("sizeInBytes")) {
            return Long.valueOf(batch.size());
        } else if (name.equals("partitionSchema")) {
            return partition;
        } else if (name.equals("metadataOpsTimeNs")) {
            return Option.empty();
        } else if (name.equals("isTimeTravel")) {
            return Boolean.FALSE;
        } else if (name.equals("refresh")) {
            return null; // the files of a batch never change
        } else if (name.equals("equals")) {
            return Boolean.valueOf(proxy == args[0]);
        } else if (name.equals("hashCode")) {
            return Integer.valueOf(System.identityHashCode(proxy));
        } else if (name.equals("toString")) {
            return "PlannedFiles(" + batch.root() + ")";
        }
        throw new UnsupportedOperationException("this Spark has another FileIndex: " + method);
    }

    /** Returns the files, with their values, that satisfy filters of partition columns. Spark relies on it. */
    private List directories(List filters) {
        List predicates = new ArrayList();
        for (Object filter : filters) {
            Object bound = ((Expression) filter).transform(new Binding(partition));
            predicates.add(new InterpretedPredicate((Expression) bound));
        }
        List found = new ArrayList();
        List together = new ArrayList(); // without columns, all files are in one directory
        for (Object each : batch.files(group)) {
            FileStatus status = (FileStatus) ((Object[]) each)[0];
            InternalRow row = row((JsonNode) ((Object[]) each)[1]);
            boolean wanted = true;
            for (Iterator i = predicates.iterator(); wanted && i.hasNext();) {
                wanted = ((InterpretedPredicate) i.next()).eval(row);
            }
            if (wanted && partition.length() == 0) {
                together.add(status);
            } else if (wanted) {
                found.add(PartitionDirectory.apply(row, new FileStatus[] {status}));
            }
        }
        if (!together.isEmpty()) {
            FileStatus[] all = new FileStatus[together.size()];
            for (int i = 0; i < all.length; i++) {
                all[i] = (FileStatus) together.get(i);
            }
            found.add(PartitionDirectory.apply(new GenericInternalRow(new Object[0]), all));
        }
        return found;
    }

    private InternalRow row(JsonNode texts) {
        Object[] values = new Object[partition.length()];
        for (int i = 0; i < values.length; i++) {
            JsonNode text = (JsonNode) texts.get(i);
            values[i] = text.isNull() ? null : value(text.asText(), partition.fields()[i].dataType());
        }
        return new GenericInternalRow(values);
    }

    /** Returns a value of a column, which the agent has checked, as Spark represents it. */
    private static Object value(String text, DataType type) {
        String name = type.typeName();
        if (name.equals("string")) {
            return UTF8String.fromString(text);
        } else if (name.equals("integer") || name.equals("date")) {
            return Integer.valueOf(text);
        } else if (name.equals("long") || name.startsWith("timestamp")) {
            return Long.valueOf(text);
        } else if (name.equals("short")) {
            return Short.valueOf(text);
        } else if (name.equals("byte")) {
            return Byte.valueOf(text);
        } else if (name.equals("boolean")) {
            return Boolean.valueOf(text);
        } else if (name.equals("double")) {
            return Double.valueOf(text);
        } else if (name.equals("float")) {
            return Float.valueOf(text);
        } else if (name.equals("binary")) {
            return Base64.getDecoder().decode(text);
        } else if (type instanceof DecimalType) {
            DecimalType kind = (DecimalType) type;
            return Decimal.apply(new BigDecimal(text), kind.precision(), kind.scale());
        }
        throw new CommitException("commitlog.errors.NotSupported: a directory's column has type " + name
            + ": use format commitlog_ingest", null);
    }

    /** Replaces columns in a filter by their places in the row of values. */
    private static final class Binding extends AbstractPartialFunction implements Serializable {
        private final StructType columns;

        Binding(StructType columns) {
            this.columns = columns;
        }

        public boolean isDefinedAt(Object expression) {
            return expression instanceof AttributeReference;
        }

        public Object applyOrElse(Object expression, Function1 otherwise) {
            if (!isDefinedAt(expression)) {
                return otherwise.apply(expression);
            }
            int index = columns.fieldIndex(((AttributeReference) expression).name());
            return new BoundReference(index, columns.fields()[index].dataType(), true);
        }
    }
}
