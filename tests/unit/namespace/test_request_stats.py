"""The request counters of a namespace: requests and failures of each operation."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from inspect import isfunction

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from commitlog.aws import AwsOptions
from commitlog.errors import Conflict, NotFound, OutcomeUnknown, Unavailable
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, RequestCounts
from commitlog.namespace.bindings import Bindings
from commitlog.namespace.maintenance import Maintenance
from commitlog.stores.memory import MemoryStore
from commitlog.stores.s3.store import S3Store
from commitlog.tables.dynamodb.table import DynamoTable
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock
from commitlog.testing.proxy import Proxy, ProxyFault
from commitlog.urls import parse_table_url
from support.namespace import QUICK, InterceptedTable, ServiceTable, outcome, stored
from support.servers import Ministack

LAKE = "lake"


def opened() -> tuple[Namespace, InterceptedTable]:
    """Return a new namespace, and the wire to its table."""
    clock = ManualClock()
    wire = InterceptedTable(ServiceTable(clock=clock))
    lake = Namespace(wire, MemoryStore(clock=clock), LAKE, clock=clock, backoff=QUICK, grace=0)
    lake.create()
    lake.describe()  # so that no operation below reads the metadata
    return lake, wire


def counted(lake: Namespace, call: Callable[[], object]) -> dict[str, RequestCounts]:
    """Return the counts of the operations that a call performs."""
    before = lake.request_stats
    call()
    return dict(lake.request_stats.since(before).operations)


def test_each_operation_has_its_counts() -> None:
    """Counted are calls, and requests to the table and to the store; other counts are 0."""
    lake, wire = opened()
    wire.requests.clear()
    before = lake.request_stats
    lake.write("d/f", b"1")
    lake.write("d/g", b"2", overwrite=False)
    lake.stat("d/f")
    outcome(lambda: lake.stat("d/x/y"))
    lake.read("d/f")
    lake.rename("d", "e")
    found = lake.request_stats.since(before)
    assert found.namespace == LAKE
    assert found.operations == {
        "write": RequestCounts(calls=2, gets=7, transactions=2, writes=7, store_puts=2),
        "stat": RequestCounts(calls=2, gets=4),
        "read": RequestCounts(calls=1, gets=2, store_gets=1),
        "rename": RequestCounts(calls=1, gets=3, transactions=1, writes=4),
    }
    total = found.total
    assert (total.table, total.store) == (wire.requests.total(), 3)
    assert total == RequestCounts(
        calls=6, gets=16, transactions=3, writes=11, store_puts=2, store_gets=1
    )
    assert not lake.request_stats.since(lake.request_stats).operations


def test_a_listing_is_counted_while_it_is_read() -> None:
    """Its requests count for the listing; requests between its entries count for their own operation."""
    lake, _ = opened()
    for name in ("a/1", "a/2", "b/1"):
        lake.write(name, b"")

    def read() -> None:
        for found in lake.walk():
            lake.stat(found.path)

    assert counted(lake, read) == {
        "walk": RequestCounts(calls=1, gets=1, queries=3),
        "stat": RequestCounts(calls=5, gets=8),
    }
    assert counted(lake, lake.summary) == {"summary": RequestCounts(calls=1, gets=2, queries=3)}
    assert counted(lake, lambda: lake.list("a")) == {}
    assert counted(lake, lambda: next(lake.list("a"))) == {
        "list": RequestCounts(calls=1, gets=1, queries=1)
    }
    assert counted(lake, lambda: list(lake.list("x")) if lake.exists("x") else None) == {
        "exists": RequestCounts(calls=1, gets=2)
    }


def test_open_files_and_writers_count_for_the_call_that_opened_them() -> None:
    """Their requests add no calls."""
    lake, _ = opened()

    def work() -> None:
        with lake.open_writer("f") as writer:
            for _ in range(3):
                writer.write(b"1")
            writer.commit()
        file = lake.open("f")
        for _ in range(3):
            file.read()

    assert counted(lake, work) == {
        "open_writer": RequestCounts(calls=1, gets=5, transactions=1, writes=2, store_puts=1),
        "open": RequestCounts(calls=1, gets=1, store_gets=3),
    }


def test_large_content_is_staged_and_published() -> None:
    """Uploads in parts count when they begin and when they end; copies are counted, too."""
    lake, _ = opened()

    def work() -> None:
        with lake.open_writer("f") as writer:
            writer.write(bytes(9_000_000))
            writer.commit()
        with lake.open_writer("g") as writer:
            writer.copy(lake.open("f"))
            writer.commit()
        with lake.open_writer("h") as writer:
            writer.write(bytes(9_000_000))

    found = counted(lake, work)["open_writer"]
    assert (found.store_stages, found.store_publishes, found.store_copies) == (2, 1, 1)
    assert (found.store_heads, found.store_puts) == (1, 0)


def test_failures_are_counted() -> None:
    """Counted are refused requests, lost answers, recognised successes, and outdated plans."""
    lake, wire = opened()
    lake.make_directory("d")
    troubles: list[Exception | Callable[[], object]] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what != "transact" or not troubles:
            perform()
            return
        trouble = troubles.pop(0)
        if not isinstance(trouble, Exception):
            trouble()
            perform()
            return
        if isinstance(trouble, OutcomeUnknown):
            perform()
        raise trouble

    wire.step = step
    troubles += [Conflict("busy"), Unavailable("throttled"), OutcomeUnknown("lost")]
    found = counted(lake, lambda: lake.write("d/f", b""))["write"]
    assert found == RequestCounts(
        calls=1,
        gets=3,  # the last one finds out whether the write happened
        transactions=3,
        writes=6,
        store_puts=1,
        conflicts=1,
        unavailable=1,
        unknown=1,
        retries=2,
        recognised=1,
    )
    other = Namespace(wire, lake.store, LAKE)
    other.describe()
    troubles.append(lambda: other.set_attributes("d/f", attributes={"x": "1"}))
    found = counted(lake, lambda: lake.write("d/f", b""))["write"]
    assert found == RequestCounts(calls=1, gets=5, transactions=2, writes=4, store_puts=1, refused=1)


def test_a_repeated_request_that_is_refused_is_recognised() -> None:
    """The first copy of the request succeeded."""
    clock = ManualClock()
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=clock)
    table.create()
    wire = InterceptedTable(table)
    lake = Namespace(wire, MemoryStore(clock=clock), LAKE, clock=clock, backoff=QUICK)
    lake.create()

    def twice(what: str, perform: Callable[[], object]) -> None:
        perform()
        if what == "transact":
            perform()

    wire.step = twice
    found = counted(lake, lambda: lake.make_directory("d"))["make_directory"]
    assert (found.transactions, found.recognised, found.refused) == (1, 1, 0)


def test_failures_of_reads_are_counted() -> None:
    """A throttled read of the table counts as unavailable."""
    lake, wire = opened()
    lake.write("f", b"")
    lake.delete("f")

    def step(what: str, perform: Callable[[], object]) -> None:
        if what != "get":
            perform()
            return
        raise Unavailable("throttled")

    wire.step = step
    found = counted(lake, lambda: outcome(lambda: lake.stat("f")))["stat"]
    assert found == RequestCounts(calls=1, gets=1, unavailable=1)


def test_maintenance_is_counted() -> None:
    """Emptying the trash takes transactions, gc a bulk removal, and an import a listing."""
    lake, _ = opened()
    for number in range(3):
        lake.write(f"d/{number}", b"")
    lake.delete("d", recursive=True)
    found = counted(lake, lake.maintenance.empty_trash)["empty_trash"]
    assert (found.transactions, found.writes, found.store) == (2, 8, 0)
    lake._context.clock.sleep(1)
    found = counted(lake, lake.maintenance.gc)["gc"]
    assert (found.transactions, found.writes, found.store_bulk_deletes) == (1, 3, 1)
    lake.store.put("old/a", b"1")
    found = counted(lake, lambda: lake.maintenance.import_objects("old/", "new"))["import_objects"]
    assert (found.store_lists, found.transactions, found.writes) == (1, 2, 6)
    found = counted(lake, lambda: list(lake.bindings.diff()))["diff"]
    assert (found.store_heads, found.calls) == (1, 1)


def test_threads_of_an_operation_count_for_it() -> None:
    """This holds for all threads of an executor, and no count is lost between threads."""
    lake, _ = opened()
    lake.make_directory("d", shards=4)
    files = {f"{number}": stored(lake.store, f"o/{number}") for number in range(450)}
    with ThreadPoolExecutor(4) as threads:
        found = counted(lake, lambda: lake.bulk_link("d", files, executor=threads))
        assert found.keys() == {"bulk_link"} and found["bulk_link"].calls == 1
        assert found["bulk_link"].transactions >= 5
        found = counted(lake, lambda: list(threads.map(lambda _: lake.stat("d/1"), range(400))))
    assert found == {"stat": RequestCounts(calls=400, gets=800)}


def test_two_namespaces_do_not_count_for_each_other() -> None:
    """This holds even if one is used during an operation of the other."""
    lake, _ = opened()
    other, _ = opened()
    for number in range(2):
        lake.store.put(f"old/{number}", b"")
    before = other.request_stats
    found = counted(
        lake, lambda: lake.maintenance.import_objects("old/", "new", progress=lambda _: other.stat(""))
    )
    assert found.keys() == {"import_objects"}
    assert dict(other.request_stats.since(before).operations) == {"stat": RequestCounts(calls=1, gets=1)}


def test_requests_outside_operations_are_not_counted() -> None:
    """Direct requests to the table and the store of a namespace are not the namespace's."""
    lake, _ = opened()
    assert counted(lake, lambda: (lake.store.put("x", b""), list(lake.table.scan()))) == {}


def test_all_methods_are_operations() -> None:
    """A new method is counted without further code."""
    methods = {
        name: value
        for cls in (Namespace, Maintenance, Bindings)
        for name, value in vars(cls).items()
        if isfunction(value) and not name.startswith("_") and (cls, name) != (Namespace, "close")
    }
    assert methods.keys() >= {"create", "describe", "stat", "list", "write", "rename", "gc", "bind"}
    assert all(hasattr(method, "__wrapped__") for method in methods.values())


def test_an_operation_that_fails_is_counted_and_ends() -> None:
    """The requests of later operations do not count for it."""
    lake, _ = opened()

    def work() -> None:
        with pytest.raises(NotFound):
            lake.delete("x")
        lake.exists("x")

    found = counted(lake, work)
    assert found["delete"].calls == found["exists"].calls == 1


def test_metrics_can_be_read_by_prometheus() -> None:
    """They are counters with labels for the operation and the kind."""
    lake, _ = opened()
    lake.write("f", b"")
    families = {
        family.name: family
        for family in text_string_to_metric_families(lake.request_stats.to_openmetrics())
    }
    assert all(family.type == "counter" for family in families.values())
    values = {
        (family.name.removeprefix("commitlog_namespace_"), sample.labels.get("kind", "")): sample.value
        for family in families.values()
        for sample in family.samples
        if sample.labels["operation"] == "write" and sample.labels["namespace"] == LAKE
    }
    assert len(values) == len(RequestCounts.__slots__) - 1
    assert {name: value for name, value in values.items() if value} == {
        ("calls", ""): 1,
        ("table_requests", "get"): 3,
        ("table_requests", "transaction"): 1,
        ("table_writes", ""): 2,
        ("store_requests", "put"): 1,
    }


@pytest.mark.servers
def test_retries_of_throttled_requests_are_counted(ministack: Ministack) -> None:
    """The table and the store retry; the operation succeeds, and its counts include the retries."""
    clock = ManualClock()
    with Proxy(ministack.endpoint_url) as proxy, ExitStack() as stack:
        options = {**ministack.options, "endpoint_url": proxy.endpoint_url}
        url = parse_table_url(f"dynamodb://{ministack.new_table_name()}").with_options(options)
        table = DynamoTable(url, NAMESPACE_SCHEMA, clock=clock, backoff=QUICK)
        stack.callback(table.close)
        table.create()
        bucket = f"s3://{ministack.new_bucket()}/"
        store = S3Store(bucket, options=AwsOptions(**options), clock=clock, backoff=QUICK)
        stack.callback(store.close)
        lake = Namespace(table, store, LAKE, clock=clock, backoff=QUICK)
        lake.create()
        lake.write("f", b"1")

        def refuse(kind: str, code: str, *, times: int) -> None:
            body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"})
            proxy.inject(ProxyFault(kind=kind, action="answer", status=400, body=body, times=times))

        refuse("GetItem", "ThrottlingException", times=2)
        refuse("TransactWriteItems", "TransactionInProgressException", times=1)
        found = counted(lake, lambda: lake.set_attributes("f", modified=1))["set_attributes"]
        assert found == RequestCounts(
            calls=1, gets=1, transactions=1, writes=1, unavailable=2, unknown=1, retries=3
        )
        refuse("GetItem", "ThrottlingException", times=8)
        found = counted(lake, lambda: outcome(lambda: lake.stat("f")))["stat"]
        assert found == RequestCounts(calls=1, gets=1, unavailable=8, retries=7)
        body = "<Error><Code>SlowDown</Code><Message>no</Message></Error>"
        proxy.inject(ProxyFault(kind="GET", action="answer", status=503, body=body, times=2))
        found = counted(lake, lambda: lake.read("f"))["read"]
        assert found == RequestCounts(calls=1, gets=1, store_gets=1, unavailable=2, retries=2)
