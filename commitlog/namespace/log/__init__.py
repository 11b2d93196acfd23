"""The operation log of a namespace.

A change is logged while it is applied, the log is kept short, and a lost table is restored from it::

    epoch             which table owns the log; logs a change, and fences other tables
    entries           the changes of the log, and the states that they leave
    recovery          decides pending changes, with the table
    checkpoint        stores sorted states
    compaction        folds decided changes into a checkpoint
    rewrite           writes a new log from the table
    restore           writes a new table from the log, in these steps:
    contents          reads the log, and carries its states from step to step
    inference         decides pending changes, without the table
    merge             makes one tree of the states
    restore_writer    writes the records
"""
