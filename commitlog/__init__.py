"""commitlog: the commit layer for object stores.

Did my write, my job or my rename happen: yes, no, or (rarely, and said out loud) unknown?

>>> import commitlog
>>> store = commitlog.connect("memory://")
>>> store.put_if_absent("a", b"first").path
'a'

Importing the package imports no client of any service, and neither Spark nor Arrow: those come with
the URL, or the call, that asks for them. The packages ``commitlog.spark``, ``commitlog.namespace``,
``commitlog.ingest`` and ``commitlog.filesystem`` are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from commitlog import errors
from commitlog.commit import ConditionalStore, DynamoCommit, LeaseSettings, SqliteCommit, Verdict
from commitlog.connect import connect
from commitlog.errors import *  # noqa: F403 - the whole tree is public
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectData, ObjectInfo, Page, PutResult, Staged, StagedInfo

if TYPE_CHECKING:
    from commitlog import filesystem, ingest, namespace, spark

__all__ = [
    "ConditionalStore",
    "DynamoCommit",
    "LeaseSettings",
    "ObjectData",
    "ObjectInfo",
    "OperationLog",
    "Page",
    "PutResult",
    "SqliteCommit",
    "Staged",
    "StagedInfo",
    "Verdict",
    "connect",
    "filesystem",
    "ingest",
    "namespace",
    "spark",
    *errors.__all__,
]


_PACKAGES = frozenset({"filesystem", "ingest", "namespace", "spark"})


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"commitlog.{name}")
    if name == "__version__":  # reading it takes longer than all of the above
        from importlib.metadata import version

        return version("commitlog-store")
    raise AttributeError(f"module 'commitlog' has no attribute {name!r}")
