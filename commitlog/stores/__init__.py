"""Object stores: the port, and the stores that implement it.

The implementations (`memory`, `local`, `s3`) are imported when a URL asks for them, so that nobody pays
for boto3 who does not use it.
"""

from commitlog.stores.api import (
    NONCE,
    Body,
    Capabilities,
    Condition,
    Fence,
    IfAbsent,
    IfMatch,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Operation,
    Page,
    Pending,
    PutResult,
    Staged,
    StagedInfo,
    StageWriter,
    same_etag,
)

__all__ = [
    "NONCE",
    "Body",
    "Capabilities",
    "Condition",
    "Fence",
    "IfAbsent",
    "IfMatch",
    "ObjectData",
    "ObjectInfo",
    "ObjectStore",
    "Observation",
    "Operation",
    "Page",
    "Pending",
    "PutResult",
    "StageWriter",
    "Staged",
    "StagedInfo",
    "same_etag",
]
