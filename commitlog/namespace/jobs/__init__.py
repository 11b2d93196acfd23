"""Job output in a namespace, published by one rename.

::

    committer    begins, publishes and aborts a job, and cleans up after dead ones
    history      which jobs a directory has published
"""
