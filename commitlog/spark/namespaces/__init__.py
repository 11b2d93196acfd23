"""The data source ``commitlog`` on namespaces: ``commitlog://lake/events`` in place of a store's URL.

A job's files come to be a directory, or are added to one, in a single step; see
`commitlog.namespace.DirectoryCommitter`. Tasks write objects and know of no names; the driver gives
the names.
"""
