"""Object stores: the port, and the stores that implement it.

`open_store` opens a store from a URL. It imports the implementation (`memory`, `local`, `s3`) that the
URL needs. The port is in `api`; `order` cuts listings, `body`, `arguments` and `s3_options` have rules
for arguments, and `counting_store` is a store that counts requests.
"""

from commitlog.stores.api import (
    NONCE,
    Capabilities,
    Condition,
    Dialect,
    IfAbsent,
    IfMatch,
    InFlight,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
    Versioning,
    WriteOperation,
    same_etag,
)
from commitlog.stores.body import Body
from commitlog.stores.memory import MemoryStore
from commitlog.stores.open import open_store

__all__ = [
    "NONCE",
    "Body",
    "Capabilities",
    "Condition",
    "Dialect",
    "IfAbsent",
    "IfMatch",
    "InFlight",
    "MemoryStore",
    "ObjectData",
    "ObjectInfo",
    "ObjectStore",
    "Observation",
    "Page",
    "PutResult",
    "RequestExpiry",
    "StageWriter",
    "Staged",
    "StagedInfo",
    "Versioning",
    "WriteOperation",
    "open_store",
    "same_etag",
]
