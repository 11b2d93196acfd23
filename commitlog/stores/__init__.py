"""Object stores: the port, and the stores that implement it.

The implementations (`memory`, `local`, `s3`) are imported when a URL asks for them, so that a
program does not import dependencies that it does not use.
"""

from commitlog.stores.api import (
    NONCE,
    Capabilities,
    Condition,
    IfAbsent,
    IfMatch,
    InFlight,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Operation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
    same_etag,
)
from commitlog.stores.body import Body

__all__ = [
    "NONCE",
    "Body",
    "Capabilities",
    "Condition",
    "IfAbsent",
    "IfMatch",
    "InFlight",
    "ObjectData",
    "ObjectInfo",
    "ObjectStore",
    "Observation",
    "Operation",
    "Page",
    "PutResult",
    "RequestExpiry",
    "StageWriter",
    "Staged",
    "StagedInfo",
    "same_etag",
]
