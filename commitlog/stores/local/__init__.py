"""A local directory as an object store.

`store` is the store, and `change` makes its changes, one writer at a time. `index` holds tokens,
metadata and uploads, `scratch` the private directory, `tree` opens files without following links, and
`file_io` reads and writes them.
"""
