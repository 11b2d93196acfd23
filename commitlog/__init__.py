"""commitlog: the commit layer for object stores.

Each write, job and rename succeeds, fails without any change, or (rarely) raises `OutcomeUnknown`.

>>> import commitlog
>>> store = commitlog.connect("memory://")
>>> store.put_if_absent("a", b"first").path
'a'

Importing the package imports no client of any service, and neither Spark nor Arrow: the URL, or the
call, that needs one imports it. All names but `connect` and the errors are imported when they are first
used, the packages ``commitlog.spark``, ``commitlog.namespace``, ``commitlog.ingest``,
``commitlog.filesystem`` and ``commitlog.iceberg`` included.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from commitlog import errors
from commitlog.connect import connect
from commitlog.errors import *  # noqa: F403 - the whole tree is public

if TYPE_CHECKING:
    from commitlog import filesystem, iceberg, ingest, namespace, spark
    from commitlog.clock import Clock, SystemClock
    from commitlog.commit import ConditionalStore, DynamoCommit, LeaseSettings, ProbeReport, SqliteCommit
    from commitlog.namespaces import (
        create_namespace,
        list_namespaces,
        open_namespace,
        restore_namespace,
    )
    from commitlog.oplog import OperationLog
    from commitlog.stores.api import ObjectData, ObjectInfo, Page, PutResult, Staged, StagedInfo

__all__ = [
    "Clock",
    "ConditionalStore",
    "DynamoCommit",
    "LeaseSettings",
    "ObjectData",
    "ObjectInfo",
    "OperationLog",
    "Page",
    "PutResult",
    "ProbeReport",
    "SqliteCommit",
    "Staged",
    "StagedInfo",
    "SystemClock",
    "connect",
    "create_namespace",
    "filesystem",
    "iceberg",
    "ingest",
    "list_namespaces",
    "namespace",
    "open_namespace",
    "restore_namespace",
    "spark",
    *errors.__all__,
]

_PACKAGES = frozenset({"filesystem", "iceberg", "ingest", "namespace", "spark"})

#: The modules of the other names: each is imported when one of its names is first used.
_HOMES = MappingProxyType(
    {
        **dict.fromkeys(
            ("ConditionalStore", "DynamoCommit", "LeaseSettings", "ProbeReport", "SqliteCommit"),
            "commitlog.commit",
        ),
        **dict.fromkeys(("Clock", "SystemClock"), "commitlog.clock"),
        **dict.fromkeys(
            ("create_namespace", "list_namespaces", "open_namespace", "restore_namespace"),
            "commitlog.namespaces",
        ),
        "OperationLog": "commitlog.oplog",
        **dict.fromkeys(
            ("ObjectData", "ObjectInfo", "Page", "PutResult", "Staged", "StagedInfo"),
            "commitlog.stores.api",
        ),
    }
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"commitlog.{name}")
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name == "__version__":  # reading it takes longer than all of the above
        from importlib.metadata import version

        value = version("commitlog-store")
    else:
        raise AttributeError(f"module 'commitlog' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
