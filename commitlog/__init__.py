"""commitlog: the commit layer for object stores.

Did my write, my job or my rename happen: yes, no, or (rarely, and said out loud) unknown?

>>> import commitlog
>>> store = commitlog.connect("memory://")
>>> store.put_if_absent("a", b"first").path
'a'

Names are imported when they are first used, so importing the package costs nothing, and neither boto3
nor Spark is needed before an URL or a call asks for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from commitlog import errors
from commitlog.errors import *  # noqa: F403 - the whole tree is public

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore, DynamoCommit, SqliteCommit, Verdict, connect
    from commitlog.oplog import OperationLog
    from commitlog.stores.api import ObjectData, ObjectInfo, Page, PutResult, Staged, StagedInfo

    __version__: str

_HOMES = {
    "ConditionalStore": "commitlog.commit",
    "DynamoCommit": "commitlog.commit",
    "ObjectData": "commitlog.stores.api",
    "ObjectInfo": "commitlog.stores.api",
    "OperationLog": "commitlog.oplog",
    "Page": "commitlog.stores.api",
    "PutResult": "commitlog.stores.api",
    "SqliteCommit": "commitlog.commit",
    "Staged": "commitlog.stores.api",
    "StagedInfo": "commitlog.stores.api",
    "Verdict": "commitlog.commit",
    "connect": "commitlog.commit",
}

__all__ = [
    "ConditionalStore",
    "DynamoCommit",
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
    *errors.__all__,
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("commitlog-store")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'commitlog' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
