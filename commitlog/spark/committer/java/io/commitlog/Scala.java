package io.commitlog;

import java.lang.reflect.Method;
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

    /** Returns a list as an immutable sequence, which is a Seq for Scala 2.12 and 2.13. */
    static Object seq(List elements) {
        return call(JavaConverters.asScalaBuffer(elements), "toList");
    }

    /** Returns a map of Java as an immutable one. */
    static scala.collection.immutable.Map immutable(Map entries) {
        try {
            Object found = Class.forName("scala.collection.immutable.Map$EmptyMap$").getField("MODULE$").get(null);
            for (Object entry : entries.entrySet()) {
                Object key = ((Map.Entry) entry).getKey();
                found = method(found, "updated", 2)
                    .invoke(found, new Object[] {key, ((Map.Entry) entry).getValue()});
            }
            return (scala.collection.immutable.Map) found;
        } catch (ReflectiveOperationException e) {
            throw new CommitException("this Scala has other maps", e);
        }
    }

    /** Returns a public method of an object by its name and number of parameters. */
    static Method method(Object object, String name, int parameters) throws NoSuchMethodException {
        Method[] methods = object.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals(name) && methods[i].getParameterTypes().length == parameters) {
                methods[i].setAccessible(true);
                return methods[i];
            }
        }
        throw new NoSuchMethodException(object.getClass().getName() + "." + name);
    }

    /** Calls a method of `object` without arguments. */
    static Object call(Object object, String method) {
        try {
            return method(object, method, 0).invoke(object, new Object[0]);
        } catch (ReflectiveOperationException e) {
            throw new CommitException("this Spark has another " + object.getClass().getName(), e);
        }
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
