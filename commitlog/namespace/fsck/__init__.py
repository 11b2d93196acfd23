"""Checks of a namespace, and repairs.

A check passes these parts in this order, and changes nothing::

    checker         the check as a whole
    readers         read-only access to the table, the store and the log
    survey          a compact summary of all records, which selects those to read again
    tree_checks     checks of the records by themselves
    cross_checks    checks of the records against the log and the store
    references      which objects the records refer to, and orphan objects
    confirm         the second read of a suspected problem
    problems        the kinds of problems, and findings

A repair takes the findings::

    repair          repairs one finding after the other
    repair_order    the order of repairs, and which depend on each other
    repair_plans    plans the change for one finding
"""
