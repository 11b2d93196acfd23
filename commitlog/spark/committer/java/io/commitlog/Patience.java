package io.commitlog;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * How long a thread waits: for some seconds, or without limit until it is interrupted. It does not throw
 * InterruptedException; what it does then has its own limit.
 */
final class Patience {
    private final long more; // after an interrupt, in nanoseconds
    private boolean limited;
    private long end;
    private boolean interrupted = false;

    private Patience(boolean limited, long seconds) {
        this.limited = limited;
        more = TimeUnit.SECONDS.toNanos(seconds);
        end = System.nanoTime() + more;
    }

    /** Returns a limit of some seconds. */
    static Patience limited(long seconds) {
        return new Patience(true, seconds);
    }

    /** Returns one without limit until the thread is interrupted, and then of some seconds. */
    static Patience untilInterrupted(long seconds) {
        return new Patience(false, seconds);
    }

    /**
     * Waits to be notified by `lock`, which the thread holds. It may return early: call it in a loop.
     *
     * Throws TimeoutException if the time is over.
     */
    void await(Object lock) throws TimeoutException {
        long left = limited ? end - System.nanoTime() : 0;
        if (limited && left <= 0) {
            throw new TimeoutException();
        }
        try {
            // Rounded up: 0 would be without limit.
            lock.wait(limited ? TimeUnit.NANOSECONDS.toMillis(left) + 1 : 0);
        } catch (InterruptedException e) {
            interrupted = true;
            if (!limited) {
                limited = true;
                end = System.nanoTime() + more;
            }
        }
    }

    /** Interrupts the thread again, if it was interrupted while it waited. Call it in the end. */
    void restore() {
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
