"""Restore, check and maintenance of a namespace in partitions, on a cluster.

The rules are those of `log`, `fsck`, `external` and `gc`. This package divides their input, and brings
together the records that one rule needs::

    dataset     the port for distributed work: records in partitions, grouped by key
    cycles      cycles of directories, found by pointer doubling
    contents    the contents of a log, for a restore
    survey      the records that may be wrong, for a check
    objects     the objects of the store, compared with the records
    repair      repairs of findings, divided into groups that depend on each other
    table       the records of the table, for a new log
    listing     the objects of a store, in ranges of about the same size
    journal     the units of a job, and which of them are complete
    imports     an import of objects
    collection  a garbage collection
    levels      the directories of a tree, level by level
    pruning     prune and diff
"""
