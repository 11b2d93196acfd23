package io.commitlog;

/** An error of the Python process. The message begins with the name of the Python class. */
public final class CommitException extends RuntimeException {
    CommitException(String message, Throwable cause) {
        super(message, cause);
    }
}
