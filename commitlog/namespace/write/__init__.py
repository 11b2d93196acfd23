"""Writes to a namespace.

`transaction` commits a change. The plans are in `plan_files` (links and deletions), `plan_rename`
(renames), `plan_tree` (whole directories) and `plan_common`. `content` and `file_io` write the
content of files, `bulk` links many files.
"""
