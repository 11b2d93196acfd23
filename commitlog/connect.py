"""`connect`: from a URL to a `ConditionalStore`.

The edge above the rules of `commitlog.commit`: it opens stores and tables, and brings the threads.
Implementations are imported by `open_store` and `open_table` when a URL asks for them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, get_args

from attrs import evolve

from commitlog.backoff import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit.conditional import ConditionalStore, Mode
from commitlog.commit.probe import RACERS
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.commit.settings import DynamoCommit, LeaseSettings, SqliteCommit, parse_dynamo
from commitlog.commit.verdict import Verdict
from commitlog.errors import ConfigurationError
from commitlog.stores.open import open_store
from commitlog.tables.api import Pending
from commitlog.tables.open import open_table
from commitlog.urls import Url, parse_store_url, parse_table_url

if TYPE_CHECKING:
    from commitlog.aws import Boto3Session

__all__ = ["connect"]


def connect(
    url: str | Url,
    *,
    commit: str | DynamoCommit | SqliteCommit = "auto",
    table: str | Url | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    addressing_style: str | None = None,
    verify: str | None = None,
    session: Boto3Session | None = None,
    verdict: Verdict | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
) -> ConditionalStore:
    """Open a store for conditional writes. Nothing is sent before it is used.

    Args:
        url: ``s3://bucket/prefix``, ``file:///directory``, ``memory://name``, or a directory.
        commit: how conditions are enforced. ``"auto"``: by the store where a probe proves that it does
            (a local directory and memory need none), else under leases in `table`, else not at all:
            such calls are refused. With a table, calls that can compete all go the same way.
            ``"native"``: by the store where that is proven, or not at all.
            ``"lease"``: always under leases in `table`.
            `DynamoCommit` or `SqliteCommit`: always under leases, with these settings.
            ``"dynamo:TABLE"`` or ``"dynamo:TABLE:TIMEOUT_MS"``: likewise, spelt as the crate
            ``object_store`` does, and as there with the endpoint, region and credentials of S3.
        table: where leases are kept, for ``"auto"`` and ``"lease"``: ``dynamodb://table``,
            ``sqlite:///file`` or ``memory://name``. A DynamoDB table is reached with the options in its
            own URL and those of the environment, not with those of S3. It has to exist
            (``commitlog table create``); the others are made on first use.
        endpoint_url, region, profile, access_key_id, secret_access_key, session_token, addressing_style,
            verify: of S3; they go before those in `url`.
        session: a boto3 session: credentials (with their refreshing), region and profile, for S3 and for
            DynamoDB, where neither options nor URL give them.
        verdict: what a probe of this store found; see `ConditionalStore`.
        clock: own clock; this machine's by default.
        backoff: how failed attempts are repeated.

    Raises:
        ConfigurationError: an argument is wrong, or two contradict one another.

    >>> store = connect("memory://")
    >>> store.put_if_absent("a", b"1").path
    'a'
    """
    clock = SystemClock() if clock is None else clock
    options = {
        "endpoint_url": endpoint_url,
        "region": region,
        "profile": profile,
        "access_key_id": access_key_id,
        "secret_access_key": secret_access_key,
        "session_token": session_token,
        "addressing_style": addressing_style,
        "verify": verify,
    }
    place = (parse_store_url(url) if isinstance(url, str) else url).with_options(options)
    mode, leases, settings = _leases(place, commit, table)
    opened = None if leases is None else open_table(leases, LEASE_SCHEMA, clock=clock, session=session)
    remote = leases is not None and leases.scheme == "dynamodb"
    if opened is not None and not remote:
        opened.create()
    return ConditionalStore(
        open_store(place, clock=clock, session=session),
        table=opened,
        mode=mode,
        settings=settings,
        verdict=verdict,
        clock=clock,
        backoff=backoff,
        executor=_threads,
        lock=_Lock(),
        finish=_Later() if remote else _now,
        root=lambda: closing(open_store(evolve(place, prefix=""), clock=clock, session=session)),
    )


def _leases(
    place: Url, commit: str | DynamoCommit | SqliteCommit, table: str | Url | None
) -> tuple[Mode, Url | None, LeaseSettings]:
    """Return the mode, where leases are kept, and how."""
    modes: tuple[Mode, ...] = get_args(Mode)
    for mode in modes:
        if commit == mode:
            leases = parse_table_url(table) if isinstance(table, str) else table
            return mode, leases, LeaseSettings()
    if table is not None:
        raise ConfigurationError("give the table either with commit=… or with table=…, not with both")
    shared: Mapping[str, str] = {}
    if isinstance(commit, str):
        if not commit.startswith("dynamo:"):
            raise ConfigurationError(
                f"commit is {commit!r}; it must be 'auto', 'native', 'lease', a DynamoCommit, "
                "a SqliteCommit or 'dynamo:TABLE[:TIMEOUT_MS]'"
            )
        commit = parse_dynamo(commit)
        shared = {k: v for k, v in place.options.items() if k != "addressing_style"}
    return "lease", parse_table_url(commit.url).with_options({**shared, **commit.options}), commit


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(RACERS, thread_name_prefix="commitlog-probe")


def _now(pending: Pending[None]) -> None:
    pending()


class _Lock:
    """A lock whose copy in a child process is free, whoever held it at the fork."""

    def __init__(self) -> None:
        self._of_process: dict[int, threading.Lock] = {}

    def __enter__(self) -> None:
        self._of_process.setdefault(os.getpid(), threading.Lock()).acquire()

    def __exit__(self, *_: object) -> None:
        self._of_process[os.getpid()].release()


class _Later:
    """Reads the answer to a release only when the same thread has sent its next one.

    The request itself is on its way, so nobody waits for the lease; its holder need not wait for the
    answer, which by then has long arrived.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def __call__(self, pending: Pending[None]) -> None:
        before: tuple[int, Pending[None]] | None = getattr(self._of_thread, "before", None)
        self._of_thread.before = os.getpid(), pending
        # After a fork it is the parent's, who reads it from a connection of its own.
        if before is not None and before[0] == os.getpid():
            before[1]()
