"""A local directory as an object store."""
