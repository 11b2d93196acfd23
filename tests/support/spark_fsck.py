"""Calls of `commitlog.spark.fsck` that are stopped at a chosen step, in a task or in the driver.

As a program, this module is a separate driver; see `support.spark_driver`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyspark.cloudpickle
from attrs import asdict, field, frozen
from pyspark import TaskContext

import commitlog
from commitlog.namespace.fsck.references import References
from commitlog.namespace.fsck.repair import Repairer
from commitlog.namespaces import open_parts
from commitlog.oplog import Decision
from commitlog.spark import cluster, fsck_job
from commitlog.spark.cluster import NamespaceAddress, SparkDataset
from commitlog.spark.session_conf import active
from commitlog.stores.local.store import LocalStore
from commitlog.tables.api import Delete, Put, Write
from commitlog.tables.dynamodb.table import DynamoTable
from commitlog.tables.sqlite import SqliteTable
from commitlog.urls import parse_table_url
from demo.quiet import quiet_session
from support.restore import LAKE
from support.spark_driver import read_tasks, report
from support.spark_gates import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["STEPS", "FsckCall", "Stop", "running", "stops"]

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: The call that the present thread makes.
_present = threading.local()


@frozen(kw_only=True)
class Step:
    """A request at which a call can be stopped.

    Attributes:
        method: the method of the table or the store.
        counts: takes its arguments; returns whether it is this request.
        in_task: whether a task sends it, and not the driver.
        after: whether the stop comes after the request, and not before it.
    """

    method: str
    counts: Callable[..., bool] = lambda *_, **__: True
    in_task: bool = False
    after: bool = False


def _below(part: str) -> Callable[..., bool]:
    return lambda path, *_, **__: part in path


def _puts(place: str = "") -> Callable[..., bool]:
    def puts(writes: Sequence[Write], **_: object) -> bool:
        return any(isinstance(each, Put) and place in str(each.item["place"]) for each in writes)

    return puts


def _deletes(writes: Sequence[Write], **_: object) -> bool:
    return any(isinstance(each, Delete) for each in writes)


#: The steps that are requests. The others are ``fold``: a task brings records of one key together;
#: ``report``: the driver is about to write the findings; ``reported``: they are written.
STEPS: Mapping[str, Step] = {
    "log": Step(method="get", counts=_below("/decided/"), in_task=True),
    "table": Step(method="scan_page", in_task=True),
    "epoch": Step(method="put", counts=_below("/epochs/"), after=True),
    "parts": Step(method="put", counts=_below("/checkpoint-parts/"), in_task=True, after=True),
    "marker": Step(method="put", counts=_below("/checkpoints/")),
    "claim": Step(method="transact", counts=_puts("/r/restore"), after=True),
    "removal": Step(method="transact", counts=_deletes, in_task=True, after=True),
    "rows": Step(method="transact", counts=_puts(), in_task=True, after=True),
    "metadata": Step(method="transact", counts=_puts("namespaces")),
    "pending": Step(method="put", counts=_below("/pending/"), in_task=True),
    "change": Step(method="transact", in_task=True),
    "changed": Step(method="transact", in_task=True, after=True),
}


@frozen(kw_only=True)
class Stop:
    """The end or the pause of a process at a step of a call: of the first one that gets there.

    Attributes:
        at: the step, of `STEPS`.
        places: texts in the URLs of the table and the store that mark the namespace.
        flag: path of a file that is created when a process gets there.
        port: port of the gate at which it waits; 0: it dies.
    """

    at: str
    places: tuple[str, ...]
    flag: str
    port: int = 0

    def spring(self) -> None:
        """Stop this process, unless another one was stopped."""
        try:
            Path(self.flag).touch(exist_ok=False)
        except FileExistsError:
            return
        if self.port:
            hold(self.port)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any], step: Step) -> Callable[..., Any]:
        """Return a method of a table or a store with the stop."""

        def stopped(owner: Any, *args: Any, **options: Any) -> Any:
            here = (
                (TaskContext.get() is not None) is step.in_task
                and any(place in owner.url for place in self.places)
                and step.counts(*args, **options)
            )
            if here and not step.after:
                self.spring()
            result = call(owner, *args, **options)
            if here and step.after:
                self.spring()
            return result

        return stopped

    def set(self) -> Callable[[], None]:
        """Set the stop in this process; return what takes it away."""
        if self.at not in STEPS:
            return lambda: None
        step = STEPS[self.at]
        owners = (LocalStore,) if step.method in ("get", "put") else (SqliteTable, DynamoTable)
        patches = [
            mock.patch.object(owner, step.method, self.around(getattr(owner, step.method), step))
            for owner in owners
        ]
        for patch in patches:
            patch.start()
        return lambda: [patch.stop() for patch in reversed(patches)] and None


def _set_in_task(given: tuple[Stop, ...]) -> None:
    """Set stops in the worker process of a task."""
    known: set[str] = LocalStore.__dict__.get("known_stops", set())
    for stop in given:
        if TaskContext.get() is not None and stop.flag not in known:
            LocalStore.known_stops = known = {*known, stop.flag}  # type: ignore[attr-defined]
            stop.set()


@frozen
class _OpenWithStops:
    """Opens the parts of a namespace in a task, with stops in the worker process."""

    stops: tuple[Stop, ...]

    def __call__(self, name: str, **options: Any) -> Any:
        _set_in_task(self.stops)
        return open_parts(name, **options)


@frozen
class _StoppedFold:
    """A call for the records of a key, with a stop before it."""

    stop: Stop
    call: Callable[[str, Iterator[Any]], Iterable[Any]]

    def __call__(self, key: str, values: Iterator[Any]) -> Iterable[Any]:
        self.stop.spring()
        return self.call(key, values)


@contextmanager
def stops(calls: Sequence[FsckCall]) -> Iterator[None]:
    """Set the stops of calls in this driver and its tasks."""
    given = tuple(call.stop for call in calls if call.stop is not None)
    group, write = SparkDataset.group, fsck_job.write

    def grouped(self: Any, call: Any) -> Any:
        stop = getattr(_present, "stop", None)
        return group(self, _StoppedFold(stop, call) if stop and stop.at == "fold" else call)

    def written(*args: Any, **options: Any) -> None:
        stop = getattr(_present, "stop", None)
        if stop and stop.at == "report":
            stop.spring()
        write(*args, **options)
        if stop and stop.at == "reported":
            stop.spring()

    class PlaceWithStops(NamespaceAddress):
        """A place whose namespace is opened for repairs in a task with stops in the worker process."""

        def open_repairer(self, references: References) -> AbstractContextManager[Repairer]:
            """See `NamespaceAddress.open_repairer`."""
            _set_in_task(given)
            return NamespaceAddress.open_repairer(self, references)

    with (
        mock.patch.object(SparkDataset, "group", grouped),
        mock.patch.object(fsck_job, "write", written),
        mock.patch.object(cluster, "open_parts", _OpenWithStops(given)),
        mock.patch.object(fsck_job, "NamespaceAddress", PlaceWithStops),
    ):
        undo = [stop.set() for stop in given]
        try:
            yield
        finally:
            for each in reversed(undo):
                each()


@frozen(kw_only=True)
class FsckCall:
    """A call of `commitlog.spark.fsck`.

    Attributes:
        mode: the mode.
        metadata: URL of the table.
        connection: options of that URL.
        options: further arguments.
        result: path of a file that gets the outcomes of repairs.
        stop: its stop.
        master: the master of the cluster on which a separate driver runs it.
        conf: settings of Spark for that.
    """

    mode: str
    metadata: str
    connection: Mapping[str, str] = field(factory=dict)
    options: Mapping[str, Any] = field(factory=dict)
    result: str = ""
    stop: Stop | None = None
    master: str = ""
    conf: Mapping[str, str] = field(factory=dict)

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FsckCall:
        """Return the call that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        stop = fields.pop("stop")
        if stop is not None:
            stop = Stop(**{**stop, "places": tuple(stop["places"])})
        return cls(**fields, stop=stop)

    def run(self, spark: SparkSession) -> Any:
        """Make the call; return its report. Its stop must be set."""
        options = dict(self.options)
        if "undecided" in options:
            options["undecided"] = Decision(options["undecided"])
        metadata = parse_table_url(self.metadata).with_options(self.connection)
        _present.stop = self.stop
        try:
            with active(spark):
                done = commitlog.spark.fsck(
                    spark, LAKE, mode=self.mode, metadata=metadata, partitions=2, **options
                )
        finally:
            _present.stop = None
        if self.result:
            found = [each.outcome.value for each in done]
            Path(self.result).write_text(json.dumps(found))
        return done


@contextmanager
def running(spark: SparkSession, *calls: FsckCall) -> Iterator[list[Future[Any]]]:
    """Make calls at the same time in this driver; wait for all of them at the end."""
    with stops(calls), ThreadPoolExecutor(len(calls)) as pool:
        yield [pool.submit(call.run, spark) for call in calls]


def main() -> None:
    """Make the calls of this driver."""
    calls = [FsckCall.from_json(text) for text in read_tasks()]
    # Each waiting task takes a slot.
    master = calls[0].master or f"local[{len(calls) + 2},4]"
    spark = quiet_session(master=master, conf=calls[0].conf)
    with running(spark, *calls) as under_way:
        for number, done in enumerate(under_way):
            done.add_done_callback(partial(report, number))
        threading.Event().wait()


if __name__ == "__main__":
    main()
