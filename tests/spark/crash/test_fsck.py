"""fsck by Spark is killed in the middle of each mode, runs twice at once, and runs while clients write.

A killed driver makes one call for each step, so that one kill is enough. Further steps run in campaigns:
``python -m pytest -m campaign tests/spark/crash/test_fsck.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve, field, frozen

import commitlog
from commitlog.commit import ConditionalStore
from commitlog.errors import AlreadyExists, Conflict, NotFound
from commitlog.namespace import NAMESPACE_SCHEMA, Finding, Namespace, RepairOutcome
from commitlog.namespace.model.keys import NAMESPACES
from commitlog.namespaces import create_namespace, open_namespace, restore_namespace
from commitlog.oplog import Decision, OperationLog
from commitlog.stores.open import open_store
from commitlog.tables.api import Item
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from commitlog.urls import Url, parse_table_url
from support.damage import lose, wrong_record
from support.namespace_clients import Client
from support.restore import LAKE, World, fill
from support.selection import in_campaigns, wanted
from support.spark_cluster import Workers
from support.spark_driver import Driver
from support.spark_fsck import FsckCall, Stop, running
from support.spark_gates import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.servers import Ministack

pytestmark = [
    pytest.mark.all,
    pytest.mark.spark,
    # A dozen calls are made at the same time.
    pytest.mark.timeout(900),
]

#: Files besides those of `fill`: the records of a restore take several transactions.
MANY = 40

#: Maximum number of calls until one is not disturbed.
TRIES = 5


@frozen
class Place:
    """A namespace that other processes can open, and places for its copies and findings.

    Attributes:
        directory: the directory of the store, of tables in SQLite, and of findings.
        server: the server of its tables in DynamoDB; None: they are in SQLite.
        names: the names of its tables in DynamoDB.
    """

    directory: Path
    server: Ministack | None = None
    names: dict[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        (self.directory / "store").mkdir(parents=True)
        self.create_table("names")
        with create_namespace(LAKE, store=self.store, metadata=self.url("names")) as lake:
            fill(lake, ManualClock())
            for number in range(MANY):
                lake.write(f"many/{number}", b"%d" % number)

    @property
    def store(self) -> str:
        """URL of the store."""
        return f"file://{self.directory}/store"

    @property
    def findings(self) -> str:
        """URL of the output of findings."""
        return f"file://{self.directory}/findings"

    @property
    def connection(self) -> Mapping[str, str]:
        """Options of the URLs of the tables."""
        return {} if self.server is None else self.server.options

    def table(self, name: str) -> str:
        """Return the URL of a table, without the options."""
        if self.server is None:
            return f"sqlite://{self.directory}/{name}.db"
        return f"dynamodb://{self.names.setdefault(name, self.server.new_table_name())}"

    def url(self, name: str) -> Url:
        """Return the URL of a table."""
        return parse_table_url(self.table(name)).with_options(self.connection)

    def create_table(self, name: str) -> None:
        """Create an empty table."""
        with closing(open_table(self.url(name), NAMESPACE_SCHEMA)) as table:
            table.create()

    def open(self, name: str = "names") -> Namespace:
        """Open the namespace in a table."""
        return open_namespace(LAKE, metadata=self.url(name), grace=0.0)

    def rows(self, name: str) -> list[Item]:
        """Return all records of the namespace in a table, without the metadata record."""
        with closing(open_table(self.url(name), NAMESPACE_SCHEMA)) as table:
            found = [item for item in table.scan() if item["place"] != NAMESPACES]
        return sorted(found, key=lambda item: (str(item["place"]), str(item["name"])))

    def logged_rows(self, name: str) -> list[Item]:
        """Return the records that the log determines."""
        return [item for item in self.rows(name) if str(item["place"]).split("/")[1] not in ("d", "g")]

    def copied(self, name: str) -> list[Item]:
        """Restore a read-only copy in this process; return its records."""
        self.create_table(name)
        with restore_namespace(LAKE, store=self.store, metadata=self.url(name)) as restorer:
            restorer.restore(read_only=True)
        return self.rows(name)

    def damage(self) -> None:
        """Damage the table."""
        with (
            closing(open_table(self.url("names"), NAMESPACE_SCHEMA)) as table,
            closing(open_store(self.store)) as store,
            self.open() as lake,
        ):
            log = OperationLog(ConditionalStore(store), f"_commitlog/namespaces/{LAKE}/log")
            at: Any = World(ManualClock(), table, store, log, None)  # type: ignore[arg-type]
            at.lake = lake
            for path in ("over", "many/1"):
                lose(at, path)
            wrong_record(at)

    def call(self, mode: str, stop: str = "", port: int = 0, **options: Any) -> FsckCall:
        """Return a call in a mode; ``replace`` is a restore that replaces."""
        table = "copy" if mode in ("restore", "replace") else "names"
        given: dict[str, Any] = {"findings": self.findings, "job_id": "run"}
        match mode:
            case "verify":
                given |= {"grace": 0, "objects": True, "orphans": True}
            case "repair":
                given |= {"grace": 0, "dry_run": False}
            case "restore" | "replace":
                given |= {"store": self.store, "undecided": Decision.ROLLED_BACK.value}
                given |= {"replace": mode == "replace"}
            case "rewrite-log":
                given = {"older_than": 0}
        places = [str(self.directory)]
        if self.server is not None:
            places.append(self.table(table))
        flag = self.directory / f"stopped at {stop}"
        return FsckCall(
            mode="restore" if mode == "replace" else mode,
            metadata=self.table(table),
            connection=self.connection,
            options={**given, **options},
            result=f"{self.directory}/outcomes" if mode == "repair" else "",
            stop=Stop(at=stop, places=tuple(places), flag=str(flag), port=port) if stop else None,
        )


def new_place(directory: Path, mode: str, server: Ministack | None = None) -> Place:
    """Return a place that is ready for a call in a mode."""
    place = Place(directory, server)
    if mode in ("verify", "repair"):
        place.damage()
    elif mode == "restore":
        place.create_table("copy")
    elif mode == "replace":
        place.copied("copy")
        # Other records than those of the log.
        with closing(open_table(place.url("copy"), NAMESPACE_SCHEMA)) as table:
            for item in list(table.scan()):
                if str(item["place"]).split("/")[0] == LAKE and str(item["name"]).isdigit():
                    table.delete(table.schema.key_of(item))
    return place


def finish(spark: SparkSession, call: FsckCall) -> Any:
    """Make a call again, without its stop."""
    return evolve(call, stop=None).run(spark)


def reported(spark: SparkSession, place: Place, run: str = "run") -> list[str]:
    """Return the kinds of findings in the output of a run, which must be there once."""
    rows = commitlog.spark.read(spark, place.findings).where(f"run = '{run}'").collect()
    return sorted(row.kind for row in rows)


def kinds(findings: Sequence[Finding]) -> list[str]:
    """Return the kinds of findings."""
    return sorted(each.problem.name for each in findings)


def check_verified(spark: SparkSession, place: Place, call: FsckCall) -> None:
    """Check that a repeated check has the findings of one process, in its output once."""
    options = {name: call.options[name] for name in ("grace", "objects", "orphans")}
    with place.open() as lake:
        expected = lake.maintenance.fsck(**options).findings
    done = finish(spark, call)
    assert done.findings == expected and len(expected) == 3
    assert reported(spark, place) == kinds(expected)


def check_repaired(spark: SparkSession, place: Place, call: FsckCall) -> None:
    """Check that everything is repaired once nothing is pending, and that nothing is lost."""
    finish(spark, call)
    with place.open() as lake:
        # A change of the dead driver may be pending: then its finding has to wait.
        lake.maintenance.recover(older_than=0)
        finish(spark, evolve(call, options={**call.options, "job_id": "another"}))
        assert lake.maintenance.fsck(grace=0, pending=0, objects=True, orphans=True).is_clean
        assert lake.read("over") == b"3" and lake.read("many/1") == b"1"
        found = {each.path for each in lake.walk() if not each.is_directory}
    assert found == {"a/new", "empty/b/1", "empty/b/2", "empty/new", "over"} - {"a/new"} | {
        f"many/{number}" for number in range(MANY)
    }
    assert len(reported(spark, place)) <= 3


def check_restored(spark: SparkSession, place: Place, call: FsckCall) -> None:
    """Check that a repeated restore has the records that a single process restores."""
    try:
        finish(spark, call)
    except AlreadyExists:
        assert call.stop is not None and call.stop.at in ("report", "reported")
    check_copy(place)


def check_copy(place: Place) -> None:
    """Check that a restored table has the records that a single process restores, and owns the log."""
    assert place.rows("copy") == place.copied("expected")
    with place.open("copy") as lake:
        lake.write("after", b"")
        assert lake.maintenance.fsck(grace=0, objects=True, orphans=True).is_clean


def check_rewritten(spark: SparkSession, place: Place, call: FsckCall) -> None:
    """Check that the table owns its log, from which a copy is the same."""
    before = place.rows("names")
    finish(spark, call)
    assert place.rows("names") == before
    place.copied("expected")
    assert place.logged_rows("expected") == place.logged_rows("names")
    with place.open() as lake:
        lake.write("after", b"")
        assert lake.maintenance.fsck(grace=0, objects=True, orphans=True).is_clean


CHECKS: Mapping[str, Callable[[SparkSession, Place, FsckCall], None]] = {
    "verify": check_verified,
    "repair": check_repaired,
    "restore": check_restored,
    "replace": check_restored,
    "rewrite-log": check_rewritten,
}


# -- processes that die --------------------------------------------------------------------------------

DEATHS = [
    in_campaigns("verify", "log"),
    in_campaigns("verify", "table"),
    in_campaigns("verify", "fold"),
    in_campaigns("verify", "report"),
    in_campaigns("verify", "reported"),
    in_campaigns("repair", "fold"),
    in_campaigns("repair", "pending"),
    ("repair", "change"),
    in_campaigns("repair", "changed"),
    in_campaigns("repair", "reported"),
    in_campaigns("restore", "log"),
    in_campaigns("restore", "fold"),
    in_campaigns("restore", "epoch"),
    in_campaigns("restore", "parts"),
    in_campaigns("restore", "marker"),
    in_campaigns("restore", "claim"),
    ("restore", "rows"),
    in_campaigns("restore", "metadata"),
    in_campaigns("restore", "report"),
    in_campaigns("replace", "claim"),
    in_campaigns("replace", "removal"),
    in_campaigns("replace", "rows"),
    in_campaigns("rewrite-log", "table"),
    in_campaigns("rewrite-log", "epoch"),
    in_campaigns("rewrite-log", "parts"),
    in_campaigns("rewrite-log", "marker"),
    in_campaigns("rewrite-log", "metadata"),
]


@frozen
class Remains:
    """The place of a dead driver's call, and the call."""

    place: Place
    call: FsckCall


@pytest.fixture(scope="module")
def remains(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Remains]:
    """Namespaces after a driver was killed while it had a call at each step."""
    scratch = tmp_path_factory.mktemp("killed")
    left = {}
    with ExitStack() as stack:
        gates = []
        for mode, step in wanted(request, test_a_driver_is_killed, "mode", "step"):
            gates.append(stack.enter_context(Gate()))
            place = new_place(scratch / f"{mode}-{step}", mode)
            left[mode, step] = Remains(place, place.call(mode, step, gates[-1].port))
        calls = [each.call for each in left.values()]
        driver = stack.enter_context(Driver(scratch, calls, program="support.spark_fsck"))
        for gate, done in zip(gates, driver.jobs, strict=True):
            gate.wait(done)
        driver.kill()
        # Python workers are not in the driver's process group.
        for gate in gates:
            gate.kill()
    return left


@pytest.mark.parametrize(("mode", "step"), DEATHS)
def test_a_driver_is_killed(
    spark: SparkSession, remains: dict[tuple[str, str], Remains], mode: str, step: str
) -> None:
    """The next call finishes, and has the result of a single process."""
    left = remains[mode, step]
    if mode in ("restore", "replace") and step in ("rows", "metadata", "removal"):
        with pytest.raises(NotFound), left.place.open("copy"):
            pass
    CHECKS[mode](spark, left.place, left.call)


WORKERS = [
    in_campaigns("verify", "log"),
    in_campaigns("verify", "table"),
    in_campaigns("verify", "fold"),
    in_campaigns("repair", "fold"),
    in_campaigns("restore", "log"),
    in_campaigns("restore", "fold"),
    in_campaigns("restore", "parts"),
    ("restore", "rows"),
    in_campaigns("replace", "removal"),
    in_campaigns("replace", "rows"),
    in_campaigns("rewrite-log", "table"),
    in_campaigns("rewrite-log", "parts"),
]


@pytest.mark.parametrize(("mode", "step"), WORKERS)
def test_the_process_of_a_task_is_killed(
    spark: SparkSession, tmp_path: Path, mode: str, step: str
) -> None:
    """Spark runs the task again. The call succeeds, and has the result of a single process."""
    place = new_place(tmp_path / "place", mode)
    call = place.call(mode, step)
    with running(spark, call) as (done,):
        done.result()
    assert call.stop is not None and Path(call.stop.flag).exists()
    if mode == "verify":
        assert reported(spark, place) == kinds(done.result().findings)
    if mode in ("restore", "replace"):
        check_copy(place)
    else:
        CHECKS[mode](spark, place, call)


# -- two calls at once ---------------------------------------------------------------------------------


@frozen
class Race:
    """Two calls at once.

    Attributes:
        mode: of both.
        step: where the other driver's call waits until ours has ended.
        loses: whether the other driver's call fails, because ours began later.
    """

    mode: str
    step: str
    loses: bool = False


RACES = {
    "two checks": Race("verify", "fold"),
    "two repairs": Race("repair", "pending"),
    "two restores, while one reads": Race("restore", "log"),
    "two restores, while one writes": Race("restore", "rows", loses=True),
    "two restores, one of which is at its end": Race("restore", "metadata", loses=True),
    "two replacing restores, while one removes": Race("replace", "removal", loses=True),
    "two rewrites, one of which has not begun": Race("rewrite-log", "table"),
    "two rewrites, one of which has claimed the log": Race("rewrite-log", "parts", loses=True),
    "two rewrites, one of which is at its end": Race("rewrite-log", "metadata", loses=True),
}


@frozen
class Rival:
    """A call of another driver that waits: driver, number, place, gate and call."""

    driver: Driver
    number: int
    place: Place
    gate: Gate
    call: FsckCall


@pytest.fixture(scope="module")
def rivals(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Rival]]:
    """Another driver with one call for each race, each in its own place."""
    scratch = tmp_path_factory.mktemp("rival")
    names = [name for (name,) in wanted(request, test_two_calls_at_once, "name")]
    with ExitStack() as stack:
        held = []
        for number, race in enumerate(RACES[name] for name in names):
            gate = stack.enter_context(Gate())
            place = new_place(scratch / str(number), race.mode)
            call = place.call(race.mode, race.step, gate.port)
            if race.mode in ("verify", "repair"):
                call = evolve(call, options={**call.options, "job_id": "rival"})
            held.append((place, gate, call))
        calls = [call for _, _, call in held]
        driver = stack.enter_context(Driver(scratch, calls, program="support.spark_fsck"))
        for (_, gate, _), done in zip(held, driver.jobs, strict=True):
            gate.wait(done)
        yield {name: Rival(driver, number, *held[number]) for number, name in enumerate(names)}


#: The race of each run with ``--all``; campaigns have the others.
SOME_RACES = ("two restores, while one writes",)


@pytest.mark.parametrize("name", [name if name in SOME_RACES else in_campaigns(name) for name in RACES])
def test_two_calls_at_once(spark: SparkSession, rivals: dict[str, Rival], name: str) -> None:
    """Both have the same result, or the one that began last continues, and the other one says so.

    Each finding is repaired once. The other call finds it changed.
    """
    race, rival = RACES[name], rivals[name]
    place = rival.place
    ours = place.call(race.mode)
    done = finish(spark, ours)
    rival.gate.open()
    error = rival.driver.error(rival.number)
    if race.loses:
        assert error is not None and "left the rest to that client" in error
    else:
        assert error is None, error
    match race.mode:
        case "verify":
            assert reported(spark, place, "rival") == reported(spark, place) == kinds(done.findings)
        case "repair":
            theirs = json.loads(Path(rival.call.result).read_text())
            outcomes = [*theirs, *(each.outcome.value for each in done)]
            assert set(outcomes) == {"done", "changed"} and outcomes.count("done") == 3
            assert len(theirs) == 3 and "changed" in theirs
    if race.mode in ("restore", "replace"):
        check_copy(place)
    else:
        CHECKS[race.mode](spark, place, ours)


# -- clients at the same time --------------------------------------------------------------------------

#: Operations of each client before a call, during it, and after it.
EACH = 8


def beside_clients(*steps: str, some: str) -> list[Any]:
    """Return cases for tables in SQLite and in DynamoDB, on a local server; campaigns have most of them.

    Args:
        steps: the steps of each.
        some: the step that each run with ``--all`` has, in DynamoDB.
    """
    cases = []
    for step in steps:
        case = pytest.param if step == some else in_campaigns
        cases += [in_campaigns("sqlite", step), case("dynamodb", step, marks=[pytest.mark.servers])]
    return cases


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Ministack | None:
    """The server of the tables, if there is one."""
    if request.param == "sqlite":
        return None
    server: Ministack = request.getfixturevalue("ministack")
    return server


@contextmanager
def clients(place: Place) -> Iterator[list[Client]]:
    """Start two processes that change the namespace, and wait until they do."""
    with ExitStack() as stack:
        with place.open() as lake:
            for number in range(2):
                lake.make_directory(f"client-{number}")
        started = [
            stack.enter_context(Client(LAKE, place.table("names"), place.connection, number))
            for number in range(2)
        ]
        work(started)
        yield started


def work(started: Sequence[Client]) -> None:
    """Wait until each of the clients has performed further operations."""
    for client in started:
        client.go_on(EACH)


@pytest.mark.parametrize("step", [in_campaigns(step) for step in ("log", "table", "fold", "report")])
def test_a_check_beside_clients_has_no_false_findings(
    spark: SparkSession, tmp_path: Path, step: str
) -> None:
    """They change the namespace while the check reads the log, the table, or brings both together."""
    place = Place(tmp_path / "place")
    with clients(place) as started, Gate() as gate:
        call = place.call("verify", step, gate.port, grace=1)
        with running(spark, call) as (done,):
            gate.wait(done)
            work(started)
            gate.open()
            assert done.result().findings == ()
        work(started)
        for client in started:
            client.stop()
        with place.open() as lake:
            for client in started:
                client.check(lake)


@pytest.mark.parametrize(
    ("server", "step"), beside_clients("pending", "fold", "change", some="change"), indirect=["server"]
)
def test_a_repair_beside_clients_keeps_what_they_wrote(
    spark: SparkSession, tmp_path: Path, server: Ministack | None, step: str
) -> None:
    """It repairs the damage alone. Everything that was acknowledged is there, and nothing else."""
    place = new_place(tmp_path / "place", "repair", server)
    with clients(place) as started, Gate() as gate:
        with running(spark, place.call("repair", step, gate.port)) as (done,):
            gate.wait(done)
            work(started)
            gate.open()
            assert [each.outcome for each in done.result()] == [RepairOutcome.DONE] * 3
        work(started)
        for client in started:
            client.stop()
    with place.open() as lake:
        for client in started:
            client.check(lake)
        assert lake.read("over") == b"3" and lake.read("many/1") == b"1"
        assert lake.maintenance.fsck(grace=0, pending=0, objects=True, orphans=True).is_clean


@pytest.mark.parametrize(
    ("server", "step"), beside_clients("log", "epoch", "", some="epoch"), indirect=["server"]
)
def test_a_restore_fences_clients_that_go_on(
    spark: SparkSession, tmp_path: Path, server: Ministack | None, step: str
) -> None:
    """Changes that were acknowledged before are in the restored table. Afterwards, they are refused."""
    place = new_place(tmp_path / "place", "restore", server)
    with clients(place) as started, Gate() as gate:
        call = place.call("restore", step, gate.port)
        for _ in range(TRIES):
            try:
                with running(spark, call) as (done,):
                    if call.stop is not None:
                        gate.wait(done)
                        if step == "log":
                            work(started)
                        else:
                            ends = [client.wait() for client in started]
                        gate.open()
                    done.result()
                break
            except (AlreadyExists, Conflict):  # a client has decided a change meanwhile
                call = evolve(call, stop=None)
        ends = [client.wait() for client in started]
    assert set(ends) <= {"Fenced", "unknown"}
    with place.open("copy") as lake:
        for client in started:
            client.check(lake)
    check_copy(place)


@pytest.mark.campaign
def test_a_rewrite_fences_clients_that_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """Clients that write until the log is claimed are refused until it ends, and lose nothing."""
    place = new_place(tmp_path / "place", "rewrite-log")
    with clients(place) as started, Gate() as gate:
        call = place.call("rewrite-log", "epoch", gate.port)
        with running(spark, call) as (done,):
            gate.wait(done)
            assert {client.wait() for client in started} <= {"Fenced", "unknown"}
            gate.open()
            done.result()
    with place.open() as lake:
        for client in started:
            client.check(lake)
        lake.maintenance.gc()  # a client may have removed objects, and was fenced before their records
    check_rewritten(spark, place, call)
    with place.open("expected") as lake:
        for client in started:
            client.check(lake)


# -- hosts of a cluster that die -----------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("mode", "step"), [("verify", "fold"), ("restore", "rows"), ("replace", "removal")]
)
def test_a_host_of_a_cluster_is_killed(
    spark: SparkSession, tmp_path: Path, mode: str, step: str
) -> None:
    """The other host runs its tasks, and computes the data of its disks, again. The call succeeds."""
    place = new_place(tmp_path / "place", mode)
    conf = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "512m"}
    with Workers(tmp_path) as hosts, Gate() as gate:
        call = place.call(mode, step, gate.port)
        call = evolve(call, master=hosts.master, conf={**conf, "spark.driver.host": "127.0.0.1"})
        with Driver(tmp_path, [call], program="support.spark_fsck") as driver:
            gate.wait(driver.jobs[0])
            hosts.kill_host_of(gate.pid)
            gate.kill()
            assert driver.error(0) is None
    if mode == "verify":
        with place.open() as lake:
            options = {name: call.options[name] for name in ("grace", "objects", "orphans")}
            expected = lake.maintenance.fsck(**options).findings
        assert reported(spark, place) == kinds(expected)
    else:
        check_copy(place)
