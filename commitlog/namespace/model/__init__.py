"""The records of a namespace: keys, entries, directories, garbage, and how a table stores them."""
