package io.commitlog;

import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import scala.Tuple2;
import scala.collection.Iterator;

/** The SQL statement that runs in this thread and writes to an output. */
final class Statement {
    private Statement() {}

    /** Returns the plan that writes to `output`; null if there is none. */
    static InsertIntoHadoopFsRelationCommand writing(String output) {
        QueryExecution execution = running(SQLExecution.EXECUTION_ID_KEY());
        return execution == null ? null : find(execution.analyzed(), output);
    }

    /** Returns the options of the table of `output`; empty if `output` belongs to no table. */
    static Map optionsOfTable(String output) {
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        boolean hasTable = insert != null && insert.catalogTable().isDefined();
        return hasTable ? options((CatalogTable) insert.catalogTable().get()) : new HashMap();
    }

    /** Returns the options of saveAsTable or CREATE TABLE ... AS SELECT; empty for other statements. */
    static Map optionsOfStatement(String output) {
        // Spark runs the part that writes as a statement of its own.
        QueryExecution root = running(SQLExecution.EXECUTION_ROOT_ID_KEY());
        if (root != null) {
            // saveAsTable: CreateTable up to Spark 4.2, SaveAsV1TableCommand since.
            try {
                Method described = root.logical().getClass().getMethod("tableDesc", new Class[0]);
                return options((CatalogTable) described.invoke(root.logical(), new Object[0]));
            } catch (ReflectiveOperationException e) {
                // another statement
            }
        }
        CreateDataSourceTableAsSelectCommand creation = root == null ? null : creation(root.analyzed());
        InsertIntoHadoopFsRelationCommand insert = writing(output);
        boolean hasTable = insert != null && insert.catalogTable().isDefined();
        return creation == null || hasTable ? new HashMap() : options(creation.table());
    }

    private static CreateDataSourceTableAsSelectCommand creation(LogicalPlan plan) {
        if (plan instanceof CreateDataSourceTableAsSelectCommand) {
            return (CreateDataSourceTableAsSelectCommand) plan;
        }
        CreateDataSourceTableAsSelectCommand found = null;
        for (Iterator i = plan.children().iterator(); found == null && i.hasNext();) {
            found = creation((LogicalPlan) i.next());
        }
        return found;
    }

    private static QueryExecution running(String property) {
        String id = SparkContext.getOrCreate().getLocalProperty(property);
        return id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    }

    private static InsertIntoHadoopFsRelationCommand find(LogicalPlan plan, String output) {
        if (plan instanceof InsertIntoHadoopFsRelationCommand) {
            InsertIntoHadoopFsRelationCommand insert = (InsertIntoHadoopFsRelationCommand) plan;
            return output.equals(insert.outputPath().toString()) ? insert : null;
        }
        InsertIntoHadoopFsRelationCommand found = null;
        for (Iterator i = plan.children().iterator(); found == null && i.hasNext();) {
            found = find((LogicalPlan) i.next(), output);
        }
        return found;
    }

    private static Map options(CatalogTable table) {
        Map options = new HashMap();
        for (Iterator i = table.storage().properties().iterator(); i.hasNext();) {
            Tuple2 each = (Tuple2) i.next();
            options.put(each._1(), each._2());
        }
        return options;
    }
}
