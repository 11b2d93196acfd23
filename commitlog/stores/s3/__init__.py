"""A bucket of S3, or of a server that speaks its protocol, as an object store.

`store` is the store, `bucket` sends its requests, and `multipart` sends uploads in parts. `dialects` has
the headers by which vendors let requests carry conditions. `records` and `xml` read responses.
"""
