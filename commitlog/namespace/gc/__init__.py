"""Removal of deleted files and directories, in this order.

::

    trash      empties the trash: directories go, and the content of their files becomes garbage
    objects    collects garbage: removes objects after their grace period
    deletes    removes records, for both and for pruning
"""
