"""Directories that other programs write to, and the import of existing objects.

A read or write in a bound directory passes these parts in this order::

    views           the tree as readers and as plans see it
    overlay         compares one name with the store
    listing_diff    compares a whole directory with the store
    store           asks the store, and verifies that it is the right one
    sync            saves to the table what the store has

The operations on bound directories, and the import::

    diff            yields the differences between the table and the store
    prune           removes rows and tombstones whose objects are gone
    importer        creates files for existing objects
"""
