"""Avro object container files: the format, its container, and bounds for hostile files."""

from commitlog.extras import require

require("fastavro", extra="avro", user="fileFormat avro")
