"""The records of a namespace, and the rules for names and paths. No requests.

Parts, each of which uses only those above it::

    keys        names, paths, and the keys of records
    codec       fields and documents of table items
    data        the reference from a file to its object
    binding     the binding of a directory to a prefix of the store
    records     entries, directory records, guards, garbage and tombstones
    backing     the objects that back the entries of bound directories
"""
