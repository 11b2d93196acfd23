"""Operation logs: `OperationLog`, and the record format that it shares with outputs.

`codec` is the envelope of stored records, `validate` checks their fields, `torn_reads` reads records
that others replace meanwhile, `record_directory` is a directory of records, and `log` the operation log.
"""

from commitlog.oplog.log import Decision, LogSize, Operation, OperationLog

__all__ = ["Decision", "LogSize", "Operation", "OperationLog"]
