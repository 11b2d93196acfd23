package io.commitlog;

import java.util.List;
import java.util.Map;
import scala.collection.JavaConverters;
import scala.collection.Seq;

/**
 * Scala's collections as those of Java.
 *
 * Code that calls the methods of Scala's collections links with one of Scala 2.12 and 2.13 only, because
 * other interfaces declare them. So does code that calls a method whose signature has a Seq.
 */
final class Scala {
    private Scala() {}

    /** Returns a sequence as a list. */
    static List list(Seq elements) {
        return JavaConverters.seqAsJavaList(elements);
    }

    /** Returns a map of Scala as one of Java. */
    static Map map(scala.collection.Map entries) {
        return JavaConverters.mapAsJavaMap(entries);
    }

    /** Calls a method of `object` that returns a sequence; returns that as a list. */
    static List list(Object object, String method) {
        try {
            return list((Seq) object.getClass().getMethod(method, new Class[0]).invoke(object, new Object[0]));
        } catch (ReflectiveOperationException e) {
            throw new CommitException("this Spark has another " + object.getClass().getName(), e);
        }
    }
}
