"""Replaced directories, and many files that are linked at once: over every table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from commitlog._util.concurrency import SerialExecutor
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    TransactionTooLarge,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Data, Namespace
from commitlog.namespace.model.codec import MAX_ATTRIBUTES
from commitlog.namespace.model.keys import shards_of
from commitlog.namespace.model.records import Entry
from commitlog.stores.memory import MemoryStore
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable, outcome, stored

LAKE = "lake"


@pytest.fixture(params=["memory", "sqlite", pytest.param("ministack", marks=pytest.mark.servers)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Namespace]:
    """A new namespace on each kind of table. Its invariants are checked after the test."""
    options: dict[str, str] = {}
    url = {"memory": "memory://", "sqlite": f"sqlite://{tmp_path}/names.db"}.get(request.param)
    if url is None:
        server = request.getfixturevalue(request.param)
        url, options = f"dynamodb://{server.new_table_name()}", server.options
    table = open_table(url, NAMESPACE_SCHEMA, **options)
    table.create()
    clock = ManualClock()
    namespace = Namespace(table, MemoryStore(clock=clock), LAKE, clock=clock, grace=0)
    namespace.create()
    yield namespace
    audit(namespace)
    namespace.maintenance.empty_trash()
    clock.advance(1)
    namespace.maintenance.gc()
    audit(namespace)
    table.close()


def audit(lake: Namespace) -> dict[str, Entry]:
    """Check all invariants; return the entry of each path."""
    return Auditor(lake.table, LAKE, lake.store).audit()


def objects(lake: Namespace, *names: str) -> dict[str, Data]:
    """Return an object for each name."""
    return {name: stored(lake.store, f"objects/{name}") for name in names}


def many(lake: Namespace, number: int) -> dict[str, Data]:
    """Return `number` objects."""
    return objects(lake, *(f"{each:03}" for each in range(number)))


# -- replaced directories ------------------------------------------------------------------------------


def test_a_directory_replaces_another_with_its_content(lake: Namespace) -> None:
    """It keeps its id and content. The whole other directory moves to the trash."""
    lake.write("old/d/f", b"old")
    lake.make_directory("old/e", shards=4)
    new = lake.write("new/f", b"new")
    moving = lake.stat("new")
    moved = lake.replace("new", "old")
    assert (moved.path, moved.id, moved.version) == ("old", moving.id, moving.version + 1)
    assert sorted(audit(lake)) == ["old", "old/f"]
    assert lake.read("old/f") == b"new" and lake.stat("old/f").entry == new.entry
    with pytest.raises(NotFound):
        lake.replace("new", "old")
    swept = lake.maintenance.empty_trash()
    assert (swept.files, swept.directories) == (1, 3)


def test_a_directory_of_many_shards_is_replaced_at_once(lake: Namespace) -> None:
    """All its guard records are removed, so no file can be added to the directory in the trash."""
    lake.make_directory("a/old", shards=64)
    lake.make_directory("b/new")
    lake.replace("b/new", "a/old")
    assert sorted(audit(lake)) == ["a", "a/old", "b"]
    lake.write("a/old/f", b"")


def test_replacing_a_missing_directory_is_a_rename(lake: Namespace) -> None:
    """Replacing a directory by itself changes nothing."""
    lake.write("a/f", b"")
    lake.make_directory("d")
    assert lake.replace("a", "d/b").path == "d/b"
    assert lake.replace("d/b", "d/b").version == 2
    assert sorted(audit(lake)) == ["d", "d/b", "d/b/f"]
    with pytest.raises(NotFound):
        lake.replace("d/b", "x/y")
    assert lake.maintenance.empty_trash().directories == 0


@pytest.mark.parametrize(
    ("source", "target", "error", "why"),
    [
        ("a/b", "a", InvalidPath, "would go into the trash with it"),
        ("a/b", "", InvalidPath, "the root cannot be replaced"),
        ("", "a", InvalidPath, "the root cannot be renamed"),
        ("a", "a/b", InvalidPath, "cannot be moved below itself"),
        ("a", "a/x", InvalidPath, "cannot be moved below itself"),
        ("f", "a", NotADirectory, "'f' is a file"),
        ("a", "f", NotADirectory, "'f' is a file"),
        ("a", "f/x", NotADirectory, "leads through a file"),
        ("x", "a", NotFound, "nothing at 'x'"),
        ("f", "f", NotADirectory, "'f' is a file"),
    ],
)
def test_impossible_replacements_are_refused(
    lake: Namespace, source: str, target: str, error: type[CommitError], why: str
) -> None:
    """This includes a file, the root, and a directory and its own descendant. Nothing changes."""
    lake.make_directory("a/b")
    lake.write("f", b"")
    with pytest.raises(error, match=why):
        lake.replace(source, target)
    assert {path: entry.version for path, entry in audit(lake).items()} == {"a": 1, "a/b": 1, "f": 1}
    assert lake.maintenance.empty_trash().directories == 0


def test_only_the_expected_version_is_replaced(lake: Namespace) -> None:
    """A later version, another directory, and a missing one are refused."""
    for name in ("old", "new", "third"):
        lake.make_directory(name)
    expected = lake.stat("old")
    changed = lake.set_attributes("old", attributes={"x": "1"})
    for wrong in (expected, lake.stat("third")):
        with pytest.raises(PreconditionFailed, match="changed since"):
            lake.replace("new", "old", expected=wrong)
    lake.replace("new", "old", expected=changed)
    lake.delete("old")
    with pytest.raises(PreconditionFailed):
        lake.replace("third", "old", expected=changed)
    assert sorted(audit(lake)) == ["third"]


# -- several files in one transaction ------------------------------------------------------------------


def test_several_files_are_linked_atomically(lake: Namespace) -> None:
    """Missing directories are made, and replaced content becomes garbage."""
    old = lake.write("a/old", b"1", attributes={"y": "1"})
    paths = ["top", "a/old", "a/new", "b/c/1", "b/c/2", "b/3"]
    files = lake.link_many(objects(lake, *paths), attributes={"x": "1"})
    assert list(files) == paths
    linked = list(files.values())
    assert [status.path for status in linked] == paths
    assert all(lake.stat(status.path) == status for status in linked)
    assert {status.entry.change_id for status in linked} == {linked[0].entry.change_id}
    assert [status.version for status in linked] == [1, 2, 1, 1, 1, 1] and linked[1].id == old.id
    assert all(dict(status.attributes) == {"x": "1"} for status in linked)
    assert sorted(audit(lake)) == ["a", "a/new", "a/old", "b", "b/3", "b/c", "b/c/1", "b/c/2", "top"]
    assert lake.maintenance.gc().objects == 1
    assert lake.link_many({}) == {}


def test_one_invalid_path_prevents_all_links(lake: Namespace) -> None:
    """The error is the same as for a single file."""
    lake.write("f", b"1")
    for directory in ("d", "e"):
        lake.make_directory(directory)
    wrong: list[tuple[str, bool, bool, type[CommitError]]] = [
        ("f", False, True, AlreadyExists),
        ("e", True, True, IsADirectory),
        ("f/x", True, True, NotADirectory),
        ("x/y", True, False, NotFound),
        ("x/y/z", True, False, NotFound),
        ("d/good/x", True, True, NotADirectory),
        ("d//x", True, True, InvalidPath),
    ]
    for path, overwrite, parents, error in wrong:
        files = objects(lake, "d/good") | {path: stored(lake.store, "objects/wrong")}
        with pytest.raises(error):
            lake.link_many(files, overwrite=overwrite, parents=parents)
    assert {path: entry.version for path, entry in audit(lake).items()} == {"d": 1, "e": 1, "f": 1}


def test_two_files_with_one_object_are_refused(lake: Namespace) -> None:
    """Deleting one file would remove the content of the other. A foreign object may be shared."""
    lake.make_directory("d")
    data = stored(lake.store, "objects/1")
    with pytest.raises(ConfigurationError, match="'a' and 'b' would have the same object"):
        lake.link_many({"a": data, "b": data})
    with pytest.raises(ConfigurationError, match="the same object"):
        lake.bulk_link("d", {"a": data, "b": data})
    foreign = evolve(data, own=False)
    lake.link_many({"a": foreign, "d/b": foreign})
    assert sorted(audit(lake)) == ["a", "d", "d/b"]


def test_files_can_swap_their_content(lake: Namespace) -> None:
    """An object that another file takes over is not garbage."""
    before = {path: lake.write(path, path.encode()).data for path in ("a", "b")}
    assert before["a"] and before["b"]
    lake.link_many({"a": before["b"], "b": before["a"]})
    assert lake.maintenance.gc().objects == 0
    assert (lake.read("a"), lake.read("b")) == (b"b", b"a")


def test_the_number_of_files_of_a_transaction_is_limited(lake: Namespace) -> None:
    """More files are refused before a request is sent."""
    files = many(lake, 101)
    wire = InterceptedTable(lake.table)
    other = Namespace(wire, lake.store, LAKE)
    other.describe()
    wire.requests.clear()
    with pytest.raises(TransactionTooLarge, match=r"linking 101 files .* nothing was sent. .*fewer"):
        other.link_many(files)
    assert not wire.requests
    with pytest.raises(TransactionTooLarge, match=r"takes 101 writes .* fewer"):
        other.link_many({name: files[name] for name in list(files)[:100]})
    assert wire.requests["transact"] == 0
    lake.link_many({name: files[name] for name in list(files)[:99]})
    assert len(audit(lake)) == 99


# -- any number of new files ---------------------------------------------------------------------------


@pytest.mark.parametrize(("shards", "transactions"), [(1, 3), (4, 3), (64, 3)])
def test_many_files_are_linked_with_few_transactions(
    lake: Namespace, shards: int, transactions: int
) -> None:
    """Each transaction links ninety-nine files with a guard record. A repetition changes nothing."""
    lake.make_directory("d", shards=shards)
    files = many(lake, 205)
    wire = InterceptedTable(lake.table)
    other = Namespace(wire, lake.store, LAKE, backoff=QUICK)
    other.bulk_link("d", files, attributes={"x": "1"})
    assert wire.requests["transact"] == transactions
    tree = audit(lake)
    assert {path: entry.data for path, entry in tree.items() if path != "d"} == {
        f"d/{name}": data for name, data in files.items()
    }
    assert all(dict(entry.attributes) == {"x": "1"} for path, entry in tree.items() if path != "d")
    lake.bulk_link("d", files)
    assert audit(lake) == tree


def test_taken_names_are_reported_and_all_other_files_are_linked(lake: Namespace) -> None:
    """An existing file with other content and an existing directory are not replaced."""
    lake.write("d/003", b"theirs")
    lake.make_directory("d/007")
    files = many(lake, 120)
    with pytest.raises(AlreadyExists, match="something else at 'd/003'"):
        lake.bulk_link("d", files)
    assert lake.read("d/003") == b"theirs" and lake.stat("d/007").is_directory
    assert len(audit(lake)) == 1 + len(files)


def test_old_shards_are_checked_after_resharding(lake: Namespace) -> None:
    """An entry in an old shard is found, whether it is the same file or another one.

    None of the new names is in the old shard, so no condition of a transaction would find it.
    """
    lake.make_directory("d")
    files = {name: data for name, data in many(lake, 20).items() if shards_of(name, 8, 1)[0] > 0}
    old = dict(list(files.items())[:10])
    lake.bulk_link("d", old)
    lake.reshard("d", shards=8)
    lake.bulk_link("d", files)
    assert len(audit(lake)) == 1 + len(files)
    changed = {name: evolve(data, etag="another") for name, data in old.items()}
    with pytest.raises(AlreadyExists):
        lake.bulk_link("d", changed)


def test_bulk_links_need_an_existing_directory_and_valid_names(lake: Namespace) -> None:
    """A missing directory, a file, and invalid names are refused."""
    lake.write("f", b"")
    files = objects(lake, "x")
    with pytest.raises(NotFound, match="no directory 'd'"):
        lake.bulk_link("d", files)
    with pytest.raises(NotADirectory, match="'f' is a file"):
        lake.bulk_link("f", files)
    for name in ("a/b", "", ".."):
        with pytest.raises(InvalidPath):
            lake.bulk_link("", {name: files["x"]})
    lake.bulk_link("", {})
    lake.bulk_link("", files)
    assert sorted(audit(lake)) == ["f", "x"]


def test_shards_are_filled_in_parallel(lake: Namespace) -> None:
    """One thread of the executor fills each shard, so no two transactions share a guard record."""
    lake.make_directory("d", shards=4)
    files = many(lake, 450)
    sizes: list[int] = []
    with ThreadPoolExecutor(4) as threads:

        class Watched(SerialExecutor):
            def map(self, call: Callable[[Any], Any], lanes: Iterable[Any], /) -> Iterator[Any]:
                lanes = list(lanes)
                sizes.append(len(lanes))
                return threads.map(call, lanes)

        lake.bulk_link("d", files, executor=Watched())
    assert sizes[0] > 1
    assert len(audit(lake)) == 451


def test_too_large_attributes_are_refused(lake: Namespace) -> None:
    """This holds for one file, and for the files of a transaction together. No content is left."""
    before = {info.path for info in lake.store.list()}
    lake.make_directory("d")
    for too_large in (
        lambda: lake.write("a", b"1", attributes={"a": "x" * 400_000 + "ü" * 10_000}),
        lambda: lake.set_attributes("d", attributes={"a": "x" * 410_000}),
    ):
        with pytest.raises(TransactionTooLarge, match="Keep less in attributes"):
            too_large()
    assert {info.path for info in lake.store.list()} == before
    with pytest.raises(TransactionTooLarge, match="fewer files"):
        lake.link_many(many(lake, 98), attributes={"a": "x" * 45_000})
    assert sorted(audit(lake)) == ["d"]


def test_files_with_large_attributes_take_more_transactions(lake: Namespace) -> None:
    """A batch that is too large for one transaction is split into two."""
    wire = InterceptedTable(lake.table)
    other = Namespace(wire, lake.store, LAKE, backoff=QUICK)
    other.make_directory("d")
    wire.requests.clear()
    other.bulk_link("d", many(lake, 150), attributes={"a": "x" * 45_000})
    assert wire.requests["transact"] == 3 + 1  # of 99, refused before it is sent, 49 and 50; of 51
    assert len(audit(lake)) == 151
    with pytest.raises(TransactionTooLarge, match="Keep less in attributes"):
        other.set_attributes("d", attributes={"a": "x" * 410_000})


def test_a_directory_with_the_largest_attributes_can_be_renamed_and_deleted(lake: Namespace) -> None:
    """It can be renamed to the longest name and deleted, although its keys become longer."""
    lake.make_directory("d")
    most = {"a": '"' * ((MAX_ATTRIBUTES - len('{"a": ""}')) // 2)}  # twice as long as JSON
    with pytest.raises(TransactionTooLarge, match="Keep less in attributes"):
        lake.set_attributes("d", attributes={"a": most["a"] + "xx"})
    lake.set_attributes("d", attributes=most)
    lake.rename("d", "ü" * 127)
    lake.delete("ü" * 127, recursive=True)
    assert not audit(lake)


# -- concurrent changes and faults ---------------------------------------------------------------------


def wired(*, stable_paths: bool = False) -> tuple[Namespace, InterceptedTable, Namespace]:
    """Return a client with hooked requests, its wire, and another client."""
    clock = ManualClock()
    table = ServiceTable(clock=clock)
    store = MemoryStore(clock=clock)
    wire = InterceptedTable(table)
    first, second = (
        Namespace(way, store, LAKE, clock=clock, backoff=QUICK, grace=0, stable_paths=stable_paths)
        for way in (wire, table)
    )
    second.create()
    first.describe()
    return first, wire, second


def once(wire: InterceptedTable, what: Callable[[], object], *, at: int = 1) -> None:
    """Call `what` before the transaction with number `at`."""
    transactions = 0

    def step(name: str, perform: Callable[[], object]) -> None:
        nonlocal transactions
        transactions += name == "transact"
        if name == "transact" and transactions == at:
            what()
        perform()

    wire.step = step


def test_a_directory_can_be_resharded_during_a_bulk_link() -> None:
    """Refused transactions are sent again to the new shards. No file is linked twice."""
    first, wire, second = wired()
    second.make_directory("d")
    files = many(second, 250)
    once(wire, lambda: second.reshard("d", shards=8), at=2)
    first.bulk_link("d", files)
    assert len(audit(second)) == 251


def test_expectations_are_checked_if_source_and_target_are_the_same(lake: Namespace) -> None:
    """`expected` and `into` apply as in any other rename."""
    old = lake.make_directory("d/e").entry
    stale = [lake.stat(path) for path in ("d", "d/e")]
    for each in stale:
        lake.set_attributes(each.path, attributes={"a": "1"})
    with pytest.raises(PreconditionFailed):
        lake.replace("d/e", "d/e", expected=stale[1])
    with pytest.raises(PreconditionFailed):
        lake.rename("d/e", "d/e", into=stale[0])
    assert lake.replace("d/e", "d/e", expected=lake.stat("d/e")).id == old.id
    assert lake.rename("d/e", "d/e", into=lake.stat("d")).version == 2


@pytest.mark.parametrize("stable_paths", [False, True])
def test_a_rename_into_a_changed_directory_is_refused(stable_paths: bool) -> None:
    """`into` is checked in the transaction, with and without stable paths."""
    first, wire, second = wired(stable_paths=stable_paths)
    second.make_directory("s")
    seen = second.make_directory("d")
    once(wire, lambda: second.set_attributes("d", attributes={"columns": "b"}))
    with pytest.raises(PreconditionFailed):
        first.rename("s", "d/s", into=seen)
    assert sorted(audit(second)) == ["d", "s"]


def test_a_directory_removed_during_a_bulk_link_is_reported() -> None:
    """After a deletion no files are left. After a rename the linked files are in that directory."""
    files: dict[str, Data]
    for gone in (True, False):
        first, wire, second = wired(stable_paths=True)
        second.make_directory("d")
        files = many(second, 150)
        once(
            wire,
            (lambda: second.delete("d", recursive=True)) if gone else (lambda: second.rename("d", "e")),  # noqa: B023
            at=2,
        )
        with pytest.raises(NotFound, match=r"no directory 'd' any more: 98 of 150 .* and 52 were not"):
            first.bulk_link("d", files)
        assert len(audit(second)) == (0 if gone else 99)


@pytest.mark.parametrize("stable_paths", [False, True])
def test_all_files_of_a_call_are_linked_into_one_directory(stable_paths: bool) -> None:
    """If another directory gets its path, the error says how many files were linked."""
    first, wire, second = wired(stable_paths=stable_paths)
    second.make_directory("d")

    def replace() -> None:
        second.reshard("d", shards=2)  # a reason to send it again
        second.rename("d", "e")
        second.make_directory("d")

    once(wire, replace, at=2)
    with pytest.raises(Conflict, match=r"another directory at 'd' now: \d+ of 198 files were linked"):
        first.bulk_link("d", many(second, 198))
    assert list(second.list("d")) == []
    assert len(list(second.list("e"))) == (98 if stable_paths else 99)


def test_a_directory_replaced_by_a_file_during_a_bulk_link_is_reported() -> None:
    """The error says how many files were linked before."""
    first, wire, second = wired(stable_paths=True)
    second.make_directory("d")

    def replace() -> None:
        second.rename("d", "e")
        second.write("d", b"")

    once(wire, replace, at=2)
    with pytest.raises(NotADirectory, match=r"'d' is a file, and was a directory: 98 of 150"):
        first.bulk_link("d", many(second, 150))


def test_a_directory_that_changes_at_every_attempt_is_reported() -> None:
    """After some attempts the error says how many files are left, and that the call can be repeated."""
    first, wire, second = wired(stable_paths=True)
    second.make_directory("d")

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            second.rename("d", "e")
            try:
                perform()
            finally:
                second.rename("e", "d")
        else:
            perform()

    wire.step = step
    with pytest.raises(Conflict, match=r"0 of 2 files were linked, and 2 were not; repeat it"):
        first.bulk_link("d", many(second, 2))
    audit(second)


def test_files_in_a_deep_directory_leave_room_for_its_path() -> None:
    """With stable paths, each parent directory takes a write of every transaction."""
    first, wire, second = wired(stable_paths=True)
    deep = "/".join("d" * 20)
    second.make_directory(deep)
    first.bulk_link(deep, many(second, 100))
    assert wire.requests["transact"] == 2
    assert len(audit(second)) == 120


def test_a_directory_renamed_during_a_link_is_resolved_again() -> None:
    """The rename happens between the lookups of two paths. All files are linked at their own paths."""
    first, wire, second = wired()
    second.make_directory("a/x")
    second.make_directory("b")
    files = {path: stored(second.store, path) for path in ("a/x/1", "b/x/1", "b/x/2/3", "a/x/2/3")}
    looked = 0

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal looked
        looked += what == "get"
        perform()
        if looked == 4:  # after "a/x/1" was not found
            second.rename("a/x", "b/x")

    wire.step = step
    linked = first.link_many(files)
    assert [status.path for status in linked.values()] == list(linked) == list(files)
    tree = audit(second)
    assert all(tree[path].data == data for path, data in files.items())


def test_a_bulk_link_can_be_repeated_after_an_unknown_outcome() -> None:
    """Whether or not the request arrived, all files are linked once."""
    for applied in (True, False):
        first, wire, second = wired()
        second.make_directory("d")
        files = many(second, 150)
        late: list[Callable[[], object]] = []

        def lose(what: str, perform: Callable[[], object]) -> None:
            if what != "transact":
                perform()
                return
            late.append(perform)  # noqa: B023
            raise OutcomeUnknown("no answer")

        wire.step = lose
        assert outcome(lambda: first.bulk_link("d", files)) is OutcomeUnknown  # noqa: B023
        if applied:
            late[0]()
        wire.step = lambda what, perform: perform()
        first.bulk_link("d", files)
        before = audit(second)
        assert len(before) == 151
        for perform in late:
            with contextlib.suppress(CommitError):
                perform()
        assert audit(second) == before


def test_a_replacement_is_never_lost_with_the_replaced_directory() -> None:
    """While `a/b` replaces `c`, another client moves `a` below `c`, or `c` below `a`."""
    for number in range(12):
        for others in (("a", "c/a"), ("c", "a/c"), ("c", "a/b/c")):
            first, wire, second = wired()
            second.write("a/b/f", b"1")
            second.make_directory("c")
            requests = 0

            def step(what: str, perform: Callable[[], object]) -> None:
                nonlocal requests
                if requests == number:  # noqa: B023
                    outcome(lambda: second.rename(*others))  # noqa: B023
                requests += 1
                perform()

            wire.step = step
            outcome(lambda: first.replace("a/b", "c"))  # noqa: B023
            files = [path for path, entry in audit(second).items() if not entry.is_directory]
            assert len(files) == 1


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda lake: lake.write("old/f", b"1"),
        lambda lake: lake.replace("third", "old"),
        lambda lake: lake.rename("old", "third/old"),
        lambda lake: lake.delete("old", recursive=True),
        lambda lake: lake.delete("new", recursive=True),
        lambda lake: lake.reshard("old", shards=4),
        lambda lake: lake.link_many(objects(lake, "old/f", "new/f", "third/f")),
    ],
    ids=["write", "replace", "rename", "delete old", "delete new", "grow", "link"],
)
def test_a_replacement_is_serializable_with_other_operations(
    meanwhile: Callable[[Namespace], object],
) -> None:
    """Wherever the other operation runs, the result is that of one after the other."""

    def prepare() -> tuple[Namespace, InterceptedTable, Namespace]:
        first, wire, second = wired()
        for directory in ("old", "new", "third"):
            second.write(f"{directory}/{directory}", b"")
        return first, wire, second

    def replace(lake: Namespace) -> None:
        lake.replace("new", "old")

    possible = []
    for one, other in ((replace, meanwhile), (meanwhile, replace)):
        _, _, lake = prepare()
        reported = [outcome(lambda: one(lake)), outcome(lambda: other(lake))]  # noqa: B023
        possible.append((*(reported if one is replace else reversed(reported)), sorted(audit(lake))))
    seen = set()
    for number in range(7):
        first, wire, second = prepare()
        reported = []
        requests = 0

        def step(what: str, perform: Callable[[], object]) -> None:
            nonlocal requests
            if requests == number:  # noqa: B023
                reported.append(outcome(lambda: meanwhile(second)))  # noqa: B023
            requests += 1
            perform()

        wire.step = step
        mine = outcome(lambda: replace(first))  # noqa: B023
        wire.step = lambda what, perform: perform()
        reported = reported or [outcome(lambda: meanwhile(second))]  # noqa: B023
        found = (mine, *reported, sorted(audit(second)))
        assert found in possible
        seen.add(number >= requests)
    assert seen == {False, True}
