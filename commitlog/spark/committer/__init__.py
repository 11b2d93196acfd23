"""The committer for Spark's own file writers (``df.write.parquet``).

* `configure`: sets up a session; builds the jar of the Java classes
* ``java/``: a commit protocol of Spark, which calls Python to begin, commit and abort a job
* `bridge`: the Python side, which commits the jobs to outputs
* `heartbeat`: heartbeats of running jobs
"""
