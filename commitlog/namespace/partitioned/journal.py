"""The journal of a job: what its units are, and which of them are complete.

A job is repeated under the same id after its driver has died. Its plan is written once, under the
condition that there is none, so all runs have the same units. A unit that is complete has a record with
its report. If two runs process a unit at the same time, the first record counts for both.

The objects of a job are ``<id>/plan.json`` and ``<id>/units/<unit>.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from attrs import frozen

from commitlog.commit import ConditionalStore
from commitlog.errors import AlreadyExists, ConfigurationError, NotFound
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.partitioned.dataset import Engine
from commitlog.oplog.codec import Document, decode, encode

__all__ = [
    "Journal",
    "NoJournal",
    "OpenJournal",
    "OpenNamespace",
    "PartitionedJob",
    "no_journal",
]

_PLAN, _UNIT = "job-plan", "job-unit"


class NoJournal:
    """The journal of a job that is not to be continued: it keeps nothing."""

    def plan(self, arguments: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Return the units that `make` returns."""
        return make()

    def find(self, unit: str) -> Any:
        """Return None: no unit is complete."""
        return None

    def record(self, unit: str, report: Any) -> Any:
        """Return the report."""
        return report


@frozen(kw_only=True)
class Journal(NoJournal):
    """The journal of one job, in a store with conditional writes. Thread-safe.

    All methods may raise the errors of `ConditionalStore`, and `CorruptRecord` or `FormatTooNew` for an
    object that cannot be read.

    Args:
        store: the store.
        id: id of the job, the name of a directory in the store.

    Raises `ConfigurationError` if the id is not such a name.
    """

    store: ConditionalStore
    id: str

    def __attrs_post_init__(self) -> None:
        if not self.id or "/" in self.id or self.id in (".", ".."):
            raise ConfigurationError(
                f"job id {self.id!r} cannot be the name of a directory: leave out slashes"
            )

    def plan(self, arguments: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Return the units of the job, which the first run has made.

        Args:
            arguments: the arguments of this run, as JSON.
            make: returns the units as JSON; called if there are none.

        Raises `ConfigurationError` if the job has other arguments.
        """
        found = self._get("plan", _PLAN)
        if found is None:
            found = self._put("plan", _PLAN, {"arguments": arguments, "units": make()})
        if _text(found["arguments"]) != _text(arguments):
            raise ConfigurationError(
                f"job {self.id!r} in {self.store.url} has the arguments {_text(found['arguments'])}, not"
                f" {_text(arguments)}: choose another id"
            )
        return found["units"]

    def find(self, unit: str) -> Any:
        """Return the report of a unit, as JSON; None if it is not complete."""
        found = self._get(f"units/{unit}", _UNIT)
        return None if found is None else found["report"]

    def record(self, unit: str, report: Any) -> Any:
        """Record that a unit is complete; return its report, which another run may have recorded first.

        Args:
            unit: name of the unit; a valid path.
            report: the report as JSON; not None.
        """
        return self._put(f"units/{unit}", _UNIT, {"report": report})["report"]

    def _path(self, name: str) -> str:
        return f"{self.id}/{name}.json"

    def _get(self, name: str, kind: str) -> Mapping[str, Any] | None:
        path = self._path(name)
        try:
            data = self.store.get(path).data
        except NotFound:
            return None
        return decode(data, {kind}, path=path).body

    def _put(self, name: str, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        data = encode(Document(kind, body))
        try:
            self.store.put_if_absent(self._path(name), data)
        except AlreadyExists:
            found = self._get(name, kind)
            if found is not None:
                return found
            raise
        return decode(data, {kind}, path=name).body


def _text(arguments: object) -> str:
    return encode(Document("arguments", {"of": arguments})).decode().partition('"of":')[2][:-1]


#: Opens the journal of a job, in any process: it can be pickled, unless all work is in one process.
OpenJournal: TypeAlias = Callable[[], AbstractContextManager[NoJournal]]


@contextmanager
def no_journal() -> Iterator[NoJournal]:
    """Return the journal of a job that is not to be continued; see `OpenJournal`."""
    yield NoJournal()


#: Opens a namespace, in any process: it can be pickled, unless all work is in one process.
OpenNamespace: TypeAlias = Callable[[], AbstractContextManager[Namespace]]


@frozen(kw_only=True)
class PartitionedJob:
    """A job on a namespace, in the partitions of an engine.

    Args:
        engine: divides the work.
        open_namespace: opens the namespace in a task.
        open_journal: opens the journal in a task; without one, a repeated call begins again.
    """

    engine: Engine
    open_namespace: OpenNamespace
    open_journal: OpenJournal = no_journal

    def plan(self, arguments: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Return the units of the job; see `Journal.plan`."""
        with self.open_journal() as journal:
            return journal.plan(arguments, make)
