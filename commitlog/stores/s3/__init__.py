"""A bucket of S3, or of a server that speaks its protocol, as an object store."""
