"""The committer for Spark's own file writers (``df.write.parquet``).

* ``java/``: a commit protocol of Spark, whose tasks write invisible files, and a plugin to set it up
* `agent`: the process that the Java half starts, and the requests that it answers
* `jobs`: begins, commits and aborts the jobs of outputs
* `s3a`: the connection settings of Hadoop's S3A, translated to options of `commitlog.connect`
* `configure`: sets up a session in Python

`commitlog.spark_jar` builds the jar of the Java half.
"""
