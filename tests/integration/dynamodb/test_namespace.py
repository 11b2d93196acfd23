"""A namespace on DynamoDB: the effect of the service's responses to transactions on a change.

A proxy injects the responses that the test server never sends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from attrs import define

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    CommitError,
    Conflict,
    OutcomeUnknown,
    TransactionCanceled,
    Unavailable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace
from commitlog.oplog import Decision, OperationLog
from commitlog.stores.memory import MemoryStore
from commitlog.tables.dynamodb.table import DynamoTable
from commitlog.testing import ManualClock
from commitlog.testing.proxy import Proxy, ProxyFault
from commitlog.urls import parse_table_url
from support.namespace import QUICK, Auditor, objects_in
from support.servers import Ministack

pytestmark = pytest.mark.servers

LAKE = "lake"
TRANSACT = "TransactWriteItems"
CANCELED = "TransactionCanceledException"

THROTTLED = json.dumps({"__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException"})

CHANGES: Mapping[str, Callable[[Namespace], object]] = {
    "create": lambda lake: lake.write("d/new", b"2", overwrite=False),
    "overwrite": lambda lake: lake.write("d/f", b"2"),
    "make": lambda lake: lake.make_directory("x/y"),
    "rename": lambda lake: lake.rename("d", "e/d"),
    "replace": lambda lake: lake.replace("d", "e"),
    "delete": lambda lake: lake.delete("d", recursive=True),
}


@define
class Setting:
    """A namespace behind a proxy, and the same one without it."""

    proxy: Proxy
    store: MemoryStore
    auditor: Auditor
    lake: Namespace
    direct: Namespace
    wrong: int = 0

    def answer(self, code: str, *, status: int = 400, times: int = 1, **rest: Any) -> None:
        """Respond to the next transactions with an error, without executing them."""
        body = json.dumps(
            {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no", **rest}
        )
        self.disturb("answer", status=status, body=body, times=times)

    def disturb(self, action: Any, **rest: Any) -> None:
        """Inject a fault into the next transactions."""
        fault = ProxyFault(kind=TRANSACT, action=action, **rest)
        self.wrong += fault.times
        self.proxy.inject(fault)

    def transactions(self) -> int:
        """Return the number of transactions since the last call."""
        return sum(request.split()[0] == TRANSACT for request in self.proxy.requests())

    def tree(self) -> dict[str, int]:
        """Check all invariants, and return the version of each path."""
        return {path: entry.version for path, entry in self.auditor.audit().items()}


@pytest.fixture(scope="module")
def proxy(ministack: Ministack) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    with Proxy(ministack.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def setting(ministack: Ministack, proxy: Proxy) -> Iterator[Setting]:
    """A namespace with a few files. Its invariants are checked after the test, and no fault is left."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    name = ministack.new_table_name()

    def table(endpoint: str) -> DynamoTable:
        url = parse_table_url(f"dynamodb://{name}")
        url = url.with_options({**ministack.options, "endpoint_url": endpoint})
        return DynamoTable(url, NAMESPACE_SCHEMA, clock=clock, backoff=Backoff(tries=2))

    with closing(table(ministack.endpoint_url)) as past, closing(table(proxy.endpoint_url)) as through:
        past.create()
        direct = Namespace(past, store, LAKE, clock=clock, backoff=QUICK)
        direct.create()
        for path in ("d", "e"):
            direct.make_directory(path)
        for path in ("d/f", "f"):
            direct.write(path, b"1")
        lake = Namespace(through, store, LAKE, clock=clock, backoff=QUICK)
        lake.describe()
        proxy.requests()
        before = proxy.strikes().total()
        setting = Setting(proxy, store, Auditor(past, LAKE, store), lake, direct)
        yield setting
        assert proxy.strikes().total() - before == setting.wrong, "faults are left for the next test"


def _expected(operation: str) -> set[str]:
    """Return the paths that exist after an operation."""
    before = {"d", "e", "d/f", "f"}
    return {
        "create": before | {"d/new"},
        "overwrite": before,
        "make": before | {"x", "x/y"},
        "rename": {"e", "e/d", "e/d/f", "f"},
        "replace": {"e", "e/f", "f"},
        "delete": {"e", "f"},
    }[operation]


@pytest.mark.parametrize(
    "reason", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]
)
@pytest.mark.parametrize("operation", CHANGES)
def test_a_throttled_transaction_is_repeated(setting: Setting, operation: str, reason: str) -> None:
    """Whichever action the service names, nothing happened. The transaction is repeated."""
    for position in range(2):
        reasons = [{"Code": "None"}] * position + [{"Code": reason}]
        setting.answer(CANCELED, times=3, CancellationReasons=reasons)
    CHANGES[operation](setting.lake)
    assert setting.transactions() == 7
    assert setting.tree().keys() == _expected(operation)


@pytest.mark.parametrize(
    ("code", "reason", "sent", "error"),
    [
        (CANCELED, "TransactionConflict", 16, Conflict),
        (CANCELED, "ThrottlingError", 16, Unavailable),
        ("ThrottlingException", None, 16, Unavailable),
        ("TransactionInProgressException", None, 16, OutcomeUnknown),
        ("InternalServerError", None, 8, OutcomeUnknown),
    ],
)
def test_endless_throttling_is_reported(
    setting: Setting, code: str, reason: str | None, sent: int, error: type[CommitError]
) -> None:
    """The error says that nothing happened, or that a request may still be executed."""
    before = setting.tree()
    reasons = {} if reason is None else {"CancellationReasons": [{"Code": reason}]}
    setting.answer(code, status=500 if code.startswith("Internal") else 400, times=sent, **reasons)
    with pytest.raises(error):
        setting.lake.write("d/new", b"2")
    assert setting.transactions() == sent
    assert setting.tree() == before
    left = len(objects_in(setting.store))
    assert left == (3 if error is OutcomeUnknown else 2), "what may be named must be there"


def test_a_transaction_still_in_progress_is_repeated(setting: Setting) -> None:
    """The service is still busy with the first request, whose response was lost."""
    setting.disturb("drop_request")  # its effect is not visible yet
    setting.answer("TransactionInProgressException", times=2)
    setting.lake.rename("d", "e/d")
    assert setting.transactions() == 4
    assert setting.tree().keys() == _expected("rename")


@pytest.mark.parametrize("operation", CHANGES)
def test_a_transaction_with_a_lost_response_is_recognised(setting: Setting, operation: str) -> None:
    """It is applied once, and recognised by its token or its change id."""
    before = setting.tree()
    setting.disturb("drop_response")
    CHANGES[operation](setting.lake)
    after = setting.tree()
    assert after.keys() == _expected(operation)
    assert all(version - before.get(path, 0) <= 1 for path, version in after.items() if path in before)


def test_a_failed_condition_with_a_conflict_is_planned_again(setting: Setting) -> None:
    """The change is planned again from the current state, instead of repeated as a conflict."""
    reasons = [{"Code": "TransactionConflict"}, {"Code": "ConditionalCheckFailed"}]
    setting.answer(CANCELED, CancellationReasons=reasons)
    setting.lake.write("d/new", b"2", overwrite=False)
    assert setting.transactions() == 2
    assert "d/new" in setting.tree()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    ("code", "rest"),
    [
        ("IdempotentParameterMismatchException", {}),
        ("AccessDeniedException", {}),
        (CANCELED, {"CancellationReasons": [{"Code": "ValidationError", "Message": "no"}]}),
    ],
)
def test_another_refusal_is_raised(
    setting: Setting, code: str, rest: Mapping[str, Any], lost: bool
) -> None:
    """The change is not planned again. After a lost response, the outcome is unknown."""
    before = setting.tree()
    if lost:
        setting.disturb("drop_request")
    setting.answer(code, **rest)
    with pytest.raises(CommitError, match="no complete answer" if lost else code) as caught:
        setting.lake.write("d/new", b"2")
    assert isinstance(caught.value, OutcomeUnknown) == lost
    assert not isinstance(caught.value, (Conflict, Unavailable, TransactionCanceled))
    assert isinstance(caught.value, AccessDenied) == (code.startswith("Access") and not lost)
    assert setting.transactions() == 1 + lost
    assert setting.tree() == before
    assert len(objects_in(setting.store)) == 2 + lost


@pytest.mark.parametrize("passes", ["advance", "suspend"])
def test_a_throttled_transaction_is_not_sent_after_a_recovery(
    ministack: Ministack, proxy: Proxy, passes: str
) -> None:
    """After a sleep between two attempts, it is planned again: a recovery may have rolled it back."""
    asleep: list[Callable[[], object]] = []

    class Slept(ManualClock):
        def sleep(self, seconds: float) -> None:
            if asleep:
                getattr(self, passes)(7200.0)
                asleep.pop()()
            super().sleep(seconds)

    clock = Slept()
    store = MemoryStore(clock=clock)
    url = parse_table_url(f"dynamodb://{ministack.new_table_name()}")

    def client(endpoint: str) -> Namespace:
        way = url.with_options({**ministack.options, "endpoint_url": endpoint})
        table = DynamoTable(way, NAMESPACE_SCHEMA, clock=clock, backoff=Backoff(tries=4))
        table.create()
        log = OperationLog(ConditionalStore(store, clock=clock), "log", clock=clock)
        return Namespace(table, store, LAKE, clock=clock, backoff=QUICK, log=log)

    with closing(client(ministack.endpoint_url)) as other, closing(client(proxy.endpoint_url)) as lake:
        other.create()
        clock.advance(1)  # after that the log contains it
        proxy.inject(ProxyFault(kind=TRANSACT, action="answer", status=400, body=THROTTLED))
        proxy.requests()
        asleep.append(other.maintenance.recover)
        lake.make_directory("d")
        sent = [request.split()[0] for request in proxy.requests()]
        assert sent.count(TRANSACT) == 2
        assert other.exists("d")
        log = OperationLog(ConditionalStore(store, clock=clock), "log", clock=clock)
        assert [each.decision for each in log.history()][1:] == [
            Decision.ROLLED_BACK,
            Decision.COMMITTED,
        ]
