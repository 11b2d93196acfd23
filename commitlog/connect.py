"""`connect`: open a `ConditionalStore` from a URL.

This module opens stores, tables and threads for `commitlog.commit`. All of them are imported by the
first call, so that ``import commitlog`` takes little time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, get_args

from commitlog._util.fork import WorkLock, renew_in_child
from commitlog.errors import ConfigurationError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from commitlog._util.retry import Backoff
    from commitlog.aws import Boto3Client, Boto3Session
    from commitlog.clock import Clock
    from commitlog.commit.conditional import ConditionalStore, Mode
    from commitlog.commit.probe_report import ProbeReport
    from commitlog.commit.settings import DynamoCommit, LeaseSettings, SqliteCommit
    from commitlog.tables.api import InFlight
    from commitlog.urls import Url

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
    client: Boto3Client | None = None,
    table_client: Boto3Client | None = None,
    probe_report: ProbeReport | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
    **object_options: str | None,
) -> ConditionalStore:
    """Open a store for conditional writes. No request is sent before the first use.

    Args:
        url: ``s3://bucket/prefix``, ``file:///directory``, ``memory://name``, or a directory.
        commit: how conditions are enforced. ``"auto"``: by the store if a probe proves that it enforces
            them (a local directory and memory need no probe); else with leases in `table`; without a
            table, conditional calls are refused. With a table, all competing calls use the same way.
            ``"native"``: by the store if a probe proves it; otherwise conditional calls are refused.
            ``"lease"``: always with leases in `table`.
            `DynamoCommit` or `SqliteCommit`: always with leases, with these settings.
            ``"dynamo:TABLE"`` or ``"dynamo:TABLE:TIMEOUT_MS"``: the same, in the syntax of the crate
            ``object_store``; as there, with the endpoint, region and credentials of S3.
        table: the table for leases, for ``"auto"`` and ``"lease"``: ``dynamodb://table``,
            ``sqlite:///file`` or ``memory://name``. A DynamoDB table takes its options from its own
            URL and the environment, not from the options of S3. A DynamoDB table must exist
            (``commitlog table create``); the others are created on first use.
        endpoint_url, region, profile, addressing_style, verify: options of S3; they override those in
            `url`.
        access_key_id, secret_access_key, session_token: credentials for S3; they override those in
            `url`.
        session: a boto3 session, for S3 and for DynamoDB. It supplies the settings that neither options
            nor URL give: credentials, region, endpoint, addressing style, timeouts, attempts, proxies,
            CA bundle. It is asked for credentials before each request, so those of a role are refreshed.
        client: a boto3 client for S3, used for the store in place of `session`.
        table_client: a boto3 client for DynamoDB, used for the table of leases in place of `session`.
        probe_report: the findings of an earlier probe of this store; see `ConditionalStore`.
        clock: the clock; by default the clock of this machine.
        backoff: the retry policy for failed attempts.
        object_options: how S3 stores objects: ``storage_class``, ``server_side_encryption``,
            ``sse_kms_key_id``, ``bucket_key``, ``tagging``, ``acl``, ``request_payer``, ``checksum``;
            and ``dialect``, the headers of conditions. They override those in `url`. See
            docs/stores.md.

    Raises:
        ConfigurationError: an argument is wrong, or two arguments contradict each other.
        NotSupported: an option asks for a feature of S3 that is not supported.

    >>> store = connect("memory://")
    >>> store.put_if_absent("a", b"1").path
    'a'
    """
    from attrs import evolve

    from commitlog.clock import SystemClock
    from commitlog.commit.conditional import ConditionalStore
    from commitlog.commit.record import LEASE_SCHEMA
    from commitlog.stores.open import open_store
    from commitlog.tables.open import open_table
    from commitlog.urls import parse_store_url

    clock = SystemClock() if clock is None else clock
    options = {
        **object_options,
        "endpoint_url": endpoint_url,
        "region": region,
        "profile": profile,
        "access_key_id": access_key_id,
        "secret_access_key": secret_access_key,
        "session_token": session_token,
        "addressing_style": addressing_style,
        "verify": verify,
    }
    location = (parse_store_url(url) if isinstance(url, str) else url).with_options(options)
    mode, leases, settings = _leases(location, commit, table)
    remote = leases is not None and leases.scheme == "dynamodb"
    if table_client is not None and not remote:
        raise ConfigurationError("table_client is for a table of leases in DynamoDB, and none is given")
    spelt_for_both = isinstance(commit, str) and commit.startswith("dynamo:")
    if spelt_for_both and client is not None and session is None and table_client is None:
        raise ConfigurationError(
            "commit='dynamo:…' reaches the table as the store is reached, and a client for S3 cannot"
            " reach DynamoDB: give table_client or session, too"
        )
    of_store = session if client is None else None
    with ExitStack() as until_error:
        opened = None
        if leases is not None:
            opened = open_table(
                leases,
                LEASE_SCHEMA,
                clock=clock,
                session=session if table_client is None else None,
                client=table_client,
            )
            until_error.callback(opened.close)
        if opened is not None and not remote:
            opened.create()
        store = open_store(location, clock=clock, session=of_store, client=client)
        until_error.callback(store.close)
        made = ConditionalStore(
            store,
            table=opened,
            mode=mode,
            settings=settings,
            probe_report=probe_report,
            clock=clock,
            backoff=backoff,
            open_executor=_open_executor,
            lock=WorkLock(),
            finish=_DeferredWait() if remote else _wait,
            root=lambda: closing(
                open_store(evolve(location, prefix=""), clock=clock, session=of_store, client=client)
            ),
        )
        until_error.pop_all()
    return made


def _leases(
    location: Url, commit: str | DynamoCommit | SqliteCommit, table: str | Url | None
) -> tuple[Mode, Url | None, LeaseSettings]:
    """Return the mode, the URL of the table of leases, and the settings of leases."""
    from commitlog.commit.conditional import Mode
    from commitlog.commit.settings import LeaseSettings, parse_dynamo
    from commitlog.urls import OBJECT_OPTIONS, parse_table_url

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
        of_store = OBJECT_OPTIONS | {"addressing_style"}
        shared = {k: v for k, v in location.options.items() if k not in of_store}
    return "lease", parse_table_url(commit.url).with_options({**shared, **commit.options}), commit


def _open_executor() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    from commitlog.commit.probe import THREADS

    return ThreadPoolExecutor(THREADS, thread_name_prefix="commitlog-probe")


def _wait(pending: InFlight[None]) -> None:
    pending()


class _DeferredWait:
    """A function that waits for the answer to a release later, when its thread releases again.

    The release request is already sent, so other writers do not wait for the lease. Its holder need not
    wait for the answer either: it has usually arrived at the next release.
    """

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget what is awaited: the answer belongs to the parent, which has its own connection."""
        self._of_thread = threading.local()

    def __call__(self, pending: InFlight[None]) -> None:
        before: InFlight[None] | None = getattr(self._of_thread, "before", None)
        self._of_thread.before = pending
        if before is not None:
            before()
