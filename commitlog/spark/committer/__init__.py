"""The committer for Spark's own file writers: the Java classes, and their Python half."""
