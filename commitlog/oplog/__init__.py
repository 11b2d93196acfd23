"""One operation, pending until it is decided: `OperationLog`, and what its records share with outputs.

`codec` is the envelope of stored records, `entries` a directory of them, `log` the operation log.
"""

from commitlog.oplog.log import Decision, Operation, OperationLog

__all__ = ["Decision", "Operation", "OperationLog"]
