"""`mount`: from the name of a namespace to a `Namespace`.

The edge above the rules of `commitlog.namespace`: it opens the table that has the names, the store that
has the content, and the log that the namespace keeps. Imports connect and all below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit import ConditionalStore, Verdict
from commitlog.connect import connect
from commitlog.errors import ConfigurationError, NotFound
from commitlog.namespace import NAMESPACE_SCHEMA, Marker, Namespace, Restorer
from commitlog.namespace.keys import MARKERS, Keys
from commitlog.namespace.marker import not_there
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Table
from commitlog.tables.open import open_table
from commitlog.urls import Url, parse_store_url, parse_table_url

if TYPE_CHECKING:
    from commitlog.aws import Boto3Session

__all__ = ["NAMES", "create_namespace", "mount", "namespaces", "parse_url", "restoring"]

#: Environment variable that has the URL of the table of names, where none is given.
NAMES = "COMMITLOG_NAMES"

#: Options of the URL that a namespace was created with that are nothing to those who open it.
_OF_CREATOR = frozenset({"profile", "verify"})

_SCHEME = "commitlog://"

#: Entries of a log that are read at a time, where many are. More would be held up by Python's lock.
_ENTRIES_AT_A_TIME = 16


def parse_url(url: str) -> tuple[str, str]:
    """Return the namespace that a URL names, and the path in it.

    What follows the namespace is taken as it is: nothing is percent-encoded, and there is no query.

    Raises `ConfigurationError` if it is no such URL.

    >>> parse_url("commitlog://lake/events/day=1/")
    ('lake', 'events/day=1')
    >>> parse_url("commitlog://lake")
    ('lake', '')
    """
    if not isinstance(url, str) or not url.startswith(_SCHEME):
        raise ConfigurationError("a URL of a namespace is commitlog://NAME/PATH; this is none")
    name, _, path = url.removeprefix(_SCHEME).partition("/")
    return Keys(name).namespace, path.removesuffix("/")


def namespaces(
    names: str | Url | None = None,
    *,
    clock: Clock | None = None,
    session: Boto3Session | None = None,
) -> Iterator[str]:
    """Yield the namespaces that a table has, by name. Arguments and errors as of `mount`."""
    table = _open_names(names, _clock_of(clock), session)
    with closing(table):
        for item in table.query(MARKERS):
            yield str(item["name"])


def mount(
    name: str,
    *,
    names: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    verdict: Verdict | None = None,
    session: Boto3Session | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
    grace: float = 3600.0,
    stable_paths: bool = False,
) -> Namespace:
    """Open a namespace that is there. One item of the table is read.

    Args:
        name: of the namespace.
        names: the table that has it: ``dynamodb://table``, ``sqlite:///file`` or ``memory://name``; by
            default what the environment variable ``COMMITLOG_NAMES`` says.
        store: where its content is, if that is reached by another URL than the one it was created with:
            another endpoint, other credentials, another directory to which a disk is mounted.
        commit, leases, verdict: how the conditional writes of its log are enforced; `commit`, `table`
            and `verdict` of `connect`. A namespace that keeps no log needs none of them.
        session: a boto3 session, for table and store.
        clock, backoff, grace, stable_paths: see `Namespace`.

    Returns a namespace; close it when done.

    Raises:
        ConfigurationError: an argument is wrong, or `store` names another bucket than the namespace's.
        NotFound: the table, or the namespace in it, does not exist.
        FormatTooNew: it was made by a newer version of this library.

    >>> lake = create_namespace("lake", store="memory://mounted", names="memory://mounted-names")
    >>> lake.write("a/b", b"rows").size
    4
    >>> mount("lake", names="memory://mounted-names").read("a/b")
    b'rows'
    """
    how = _How(
        commit=commit,
        leases=leases,
        verdict=verdict,
        session=session,
        clock=clock,
        backoff=backoff,
        grace=grace,
        stable_paths=stable_paths,
    )
    with ExitStack() as undone:
        table = undone.enter_context(closing(_open_names(names, how.clock, session)))
        lake = _mounted(name, table, None if store is None else _parsed(store), how)
        undone.pop_all()
        return lake


def create_namespace(
    name: str,
    *,
    store: str | Url,
    names: str | Url | None = None,
    log: bool = True,
    commit: str = "auto",
    leases: str | Url | None = None,
    verdict: Verdict | None = None,
    session: Boto3Session | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
    grace: float = 3600.0,
    stable_paths: bool = False,
) -> Namespace:
    """Make a namespace, and open it; one that is there already is just opened, as `mount` does.

    It must have its content in `store` then, or it is a `ConfigurationError`. Whether it is logged was
    decided by who made it.

    A table of names in SQLite or in memory is made, too; one of DynamoDB has to exist
    (``commitlog table create --for namespaces``).

    Args:
        store: where its content will be; for good.
        log: whether every change is logged in the store, below ``_commitlog/``: the names can be
            restored from that if the table is lost. It costs four requests for each change.

    Others, and errors: as of `mount`, but that a namespace which is not there is made; and
    `AlreadyExists` if `store` has the log of a namespace of that name, whose table was lost, or is
    another one: restore it, or give another name.
    """
    how = _How(
        commit=commit,
        leases=leases,
        verdict=verdict,
        session=session,
        clock=clock,
        backoff=backoff,
        grace=grace,
        stable_paths=stable_paths,
    )
    place = _parsed(store)
    with ExitStack() as undone:
        table = undone.enter_context(closing(_open_names(names, how.clock, session)))
        _make_embedded(table)
        if table.get(Keys(name).marker) is None:
            lake = how.open(name, table, place, log=_log_of(name) if log else None)
            undone.callback(lake.store.close)
            if lake.create():
                undone.pop_all()
                return lake
            lake.store.close()
        lake = _mounted(name, table, place, how)
        undone.callback(lake.store.close)
        marker = lake.check(writing=False)
        if _where(parse_store_url(marker.store)) != _where(place):
            raise _elsewhere(name, marker, place)
        undone.pop_all()
        return lake


@contextmanager
def restoring(
    name: str,
    *,
    store: str | Url,
    names: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    verdict: Verdict | None = None,
    session: Boto3Session | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
) -> Iterator[Restorer]:
    """Give what makes a namespace again whose names are lost, from the log that it keeps in `store`.

    The table must exist, unless it is one in SQLite or in memory, which is made if there is a log.
    Arguments and errors as of `mount`; `store` as it was created with, for nothing else tells it now.
    """
    how = _How(
        commit=commit, leases=leases, verdict=verdict, session=session, clock=clock, backoff=backoff
    )
    with closing(_open_names(names, how.clock, session)) as table, how.connect(store) as logged:
        log = how.log(logged, _log_of(Keys(name).namespace))
        if not any(logged.store.list(log.prefix)):
            raise NotFound(
                f"{logged.store.url} has no log of a namespace {name!r}: name the store that it was"
                " created with"
            )
        _make_embedded(table)
        yield Restorer(table=table, store=logged.store, log=log, name=name)


def _clock_of(clock: Clock | None) -> Clock:
    return SystemClock() if clock is None else clock


@frozen(kw_only=True)
class _How:
    """How a namespace is opened that has been found; see `mount`."""

    commit: str
    leases: str | Url | None
    verdict: Verdict | None
    session: Boto3Session | None
    clock: Clock = field(converter=_clock_of)
    backoff: Backoff | None
    grace: float = 3600.0
    stable_paths: bool = False

    def connect(self, place: str | Url) -> ConditionalStore:
        """Open a store with a log in it."""
        return connect(
            place,
            commit=self.commit,
            table=self.leases,
            session=self.session,
            verdict=self.verdict,
            clock=self.clock,
            backoff=self.backoff,
        )

    def open(self, name: str, table: Table, place: Url, *, log: str | None) -> Namespace:
        """Open it, with what it keeps its log in."""
        operations = None
        if log is None:
            store = open_store(place, clock=self.clock, session=self.session)
        else:
            logged = self.connect(place)
            store = logged.store
            operations = self.log(logged, log)
        return Namespace(
            table,
            store,
            name,
            clock=self.clock,
            backoff=self.backoff,
            log=operations,
            grace=self.grace,
            stable_paths=self.stable_paths,
        )

    def log(self, store: ConditionalStore, path: str) -> OperationLog:
        """Return the log that is kept under `path`."""
        threads = None if _answers_at_once(store.store) else _reading_threads
        return OperationLog(store, path, clock=self.clock, threads=threads)


def _answers_at_once(store: ObjectStore) -> bool:
    # One of this machine does, before another thread would have begun to ask.
    return store.capabilities.enforced


def _reading_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_ENTRIES_AT_A_TIME, "commitlog-log")


def _mounted(name: str, table: Table, given: Url | None, how: _How) -> Namespace:
    item = table.get(Keys(name).marker)
    if item is None:
        raise not_there(name, table.url)
    marker = Marker.from_item(item)
    marker.check(writing=False)
    place = _without(parse_store_url(marker.store), _OF_CREATOR)
    # A directory may be mounted elsewhere; a bucket has one name.
    if given is not None and (
        place.scheme != given.scheme or (place.scheme == "s3" and _where(place) != _where(given))
    ):
        raise _elsewhere(name, marker, given)
    return how.open(name, table, place if given is None else given, log=marker.log)


def _parsed(store: str | Url) -> Url:
    return parse_store_url(store) if isinstance(store, str) else store


def _log_of(name: str) -> str:
    return f"_commitlog/namespaces/{name}/log"


def _without(url: Url, options: frozenset[str]) -> Url:
    return evolve(url, options={k: v for k, v in url.options.items() if k not in options})


def _where(url: Url) -> tuple[str, str]:
    return os.path.realpath(url.name) if url.scheme == "file" else url.name, url.prefix


def _elsewhere(name: str, marker: Marker, given: Url) -> ConfigurationError:
    return ConfigurationError(f"the content of namespace {name!r} is in {marker.store}, not in {given}")


def _open_names(names: str | Url | None, clock: Clock, session: Boto3Session | None) -> Table:
    given = names or os.environ.get(NAMES)
    if not given:
        raise ConfigurationError(
            "no table of names is given: dynamodb://NAME or sqlite:///ABSOLUTE/FILE, as argument or"
            f" option 'names', or in the environment variable {NAMES}"
        )
    return open_table(given, NAMESPACE_SCHEMA, clock=clock, session=session)


def _make_embedded(table: Table) -> None:
    if parse_table_url(table.url).scheme != "dynamodb":
        table.create()
