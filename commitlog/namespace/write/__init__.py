"""Writes to a namespace: content of files, plans, and transactions.

A write passes these parts in this order::

    file_io        the streams that callers use for one file
    content        stores the content as an object, before any file refers to it
    plan_files     plans links, overwrites and removals of files
    plan_rename    plans renames and replacements
    plan_tree      plans new directories, deletions and attributes
    plan_common    what plans share: their context and rules, and groups of writes
    transaction    runs a plan: sends its change, and decides whether it happened
    bulk           links many files, with a plan for each transaction

`NamespaceContext.run` takes a plan and runs it. So a rename is planned by `plan_rename.plan_rename`, and
applied by `transaction.Changes`.
"""
