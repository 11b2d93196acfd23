"""Kinds of damage to a namespace, planted without its knowledge, and the results of their repair.

`DAMAGES` has all of them. `unit.namespace.test_repair` finds and repairs each one, and checks whether
anything was lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from attrs import evolve, frozen

from commitlog.namespace import Namespace
from commitlog.namespace.fsck.readers import LogReader
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.codec import document_of, key_of
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import ROOT, Keys, shards_of
from commitlog.namespace.model.records import Directory, Entry, Garbage, Guard, Tombstone
from commitlog.oplog.codec import Document, encode
from commitlog.tables.api import Item, Key, Table
from support.namespace import QUICK
from support.restore import World, fill, leave_pending, world

KEYS = Keys("lake")


def filled(seed: int = 0) -> World:
    """Return a namespace with a bit of everything."""
    made = world(seed)
    fill(made.lake, made.clock)
    return made


def entry(at: World, path: str) -> Entry:
    """Return the entry at a path."""
    return at.lake.stat(path).entry


def put(at: World, record: Entry | Directory | Guard | Garbage | Tombstone) -> None:
    """Write a record over any existing one."""
    at.table.put(record.to_item())


def directory(at: World, path: str) -> Directory:
    """Return the directory record of the directory at a path."""
    item = at.table.get(KEYS.directory(entry(at, path).id))
    assert item is not None
    return Directory.from_item(item)


def guard(at: World, path: str, shard: int = 0) -> Guard:
    """Return a guard record of the directory at a path."""
    item = at.table.get(KEYS.guard(entry(at, path).id, shard))
    assert item is not None
    return Guard.from_item(item)


@frozen
class Damage:
    """A change to a namespace without its knowledge.

    Attributes:
        kind: the problem that fsck finds.
        does: makes the change.
        others: problems that fsck finds too.
        left: problems that remain after a repair.
        only: kinds to repair; by default all.
        lost: number of files of the log that cannot be read afterwards, because the log cannot restore
            them.
        moved: number of entries in lost+found afterwards.
        logged: whether the namespace keeps a log.
        rounds: number of checks with repairs until nothing is left to do.
    """

    kind: str
    does: Callable[[World], object]
    others: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    only: tuple[str, ...] | None = None
    lost: int = 0
    moved: int = 0
    logged: bool = True
    rounds: int = 3


def cycle(at: World) -> None:
    """Put ``empty`` below ``empty/below``."""
    upper, below = entry(at, "empty"), entry(at, "empty/below")
    place = shards_of("empty", below.shards.now, below.shards.first)[0]
    key = KEYS.entry(below.id, place, "empty")
    at.table.delete(upper.key)
    put(at, evolve(upper, key=key, version=upper.version + 1))
    put(at, Directory(key=KEYS.directory(upper.id), parent=below.id, name="empty"))


def twice(at: World, path: str, *, more: int) -> None:
    found = entry(at, path)
    place = shards_of("twin", 2, 1)[0]
    put(at, evolve(found, key=KEYS.entry(ROOT, place, "twin"), version=found.version + more))


def wrong_shard(at: World) -> None:
    found = entry(at, "empty/new")
    upper = entry(at, "empty")
    places = shards_of("new", upper.shards.now, upper.shards.first)
    wrong = next(shard for shard in range(upper.shards.now) if shard not in places)
    at.table.delete(found.key)
    put(at, evolve(found, key=KEYS.entry(upper.id, wrong, "new")))


def name_twice(at: World) -> None:
    for number in range(100):  # until a name is found that was in another place when there was one shard
        name = f"n{number}"
        if len(shards_of(name, 2, 1)) == 2:
            break
    at.lake.write(name, b"1")
    old = shards_of(name, 2, 1)[1]
    theirs = Data.of(at.store.head(at.store.put("theirs", b"2").path))
    put(at, evolve(entry(at, name), key=KEYS.entry(ROOT, old, name), id="hidden", data=theirs))


def name_twice_of_either_kind(at: World) -> None:
    """Put a file in the first shard of a directory, and a directory with its name in another shard."""
    name = next(f"n{number}" for number in range(100) if shards_of(f"n{number}", 2, 1) == (1, 0))
    at.lake.make_directory("d")
    at.lake.write(f"d/{name}", b"1")
    file = entry(at, f"d/{name}")
    at.table.delete(file.key)
    at.lake.reshard("d", shards=2)
    at.lake.make_directory(f"d/{name}")
    put(at, file)


def object_twice(at: World) -> None:
    first, second = entry(at, "empty/b/1"), entry(at, "empty/b/2")
    put(at, evolve(second, data=first.data))


def list_garbage(at: World, path: str, not_before: int = 5) -> None:
    found = entry(at, path)
    assert found.data is not None
    key = KEYS.garbage(not_before, found.data.path)
    record = Garbage(
        key=key, file=found.id, version=1, change_id="w", not_before=not_before, data=found.data
    )
    put(at, record)


def listed_twice(at: World) -> None:
    item = next(item for item in at.table.scan() if "/x/" in str(item["place"]))
    garbage = Garbage.from_item(item)
    put(at, evolve(garbage, key=KEYS.garbage(7, garbage.data.path), not_before=7))


def lose(at: World, path: str) -> None:
    found = entry(at, path)
    at.table.delete(found.key)


def take_place(at: World, path: str) -> None:
    lose(at, path)
    at.lake.write(path, b"another")


def taken_meanwhile(at: World) -> None:
    found = entry(at, "over")
    at.lake.rename("over", "empty/over")
    at.table.delete(entry(at, "empty/over").key)
    put(at, found)
    at.lake.write("empty/over", b"another")


def older(at: World) -> None:
    found = entry(at, "empty/b/1")
    at.lake.write("empty/b/1", b"newer")
    put(at, found)


def resurrect(at: World) -> None:
    found = entry(at, "empty/b/1")
    at.lake.delete("empty/b/1")
    for item in list(at.table.scan()):
        if "/x/" in str(item["place"]) and Garbage.from_item(item).file == found.id:
            at.table.delete(at.table.schema.key_of(item))
    put(at, found)


def behind_the_log(at: World) -> None:
    found = entry(at, "empty/new")
    put(at, evolve(found, version=found.version + 1, attributes={"by": "hand"}))


def corrupt(at: World, key: Key) -> None:
    item = at.table.get(key)
    assert item is not None
    at.table.put({"place": key.hash, "name": str(key.range), "entry_name": 1, "shards": "x", "id": "x"})


def store_unnamed(at: World) -> None:
    at.store.put("abc/abc" + 29 * "0", b"nobody's")
    at.clock.advance(9 * 86_400)


def newer_elsewhere(at: World) -> None:
    """Add another namespace to the table, with a file in the format of a newer library."""
    other = Namespace(at.table, at.store, "other", clock=at.clock)
    other.create()
    other.write("x", b"precious")
    written_by_newer(at.table, other.stat("x").entry)
    at.clock.advance(9 * 86_400)


def with_more_fields(table: Table, entry: Entry) -> None:
    """Write an entry in this format with a field that this library does not know."""
    body = {**document_of(entry.to_item(), "namespace-file", "namespace-directory").body, "owner": "me"}
    kind = "namespace-directory" if entry.is_directory else "namespace-file"
    table.put({**entry.to_item(), "body": encode(Document(kind, body))})


def written_by_newer(table: Table, entry: Entry) -> None:
    """Write an entry in a format that this library does not know."""
    fields = json.loads(bytes(entry.to_item()["body"]))  # type: ignore[arg-type]
    table.put({**entry.to_item(), "body": json.dumps({**fields, "format": 99}).encode()})


def replaced(at: World) -> None:
    data = entry(at, "over").data
    assert data is not None
    at.store.put(data.path, b"by somebody else")


def lose_object(at: World) -> None:
    data = entry(at, "over").data
    assert data is not None
    at.store.delete(data.path)


def change_outside(at: World) -> None:
    """Change an object of a bound directory whose rows never expire."""
    at.store.put("raw/a", b"1")
    at.lake.bindings.bind("raw/", "in", max_age=None)
    at.lake.bindings.sync("in")
    at.clock.advance(1)
    at.store.put("raw/a", b"22")


def stray_guard(at: World) -> None:
    trashed = next(
        each for each in at.entries(at.table).values() if each.key.hash.startswith("lake/e/trash")
    )
    put(at, Guard(key=KEYS.guard(trashed.id, 0), shards=1, change_id="w"))


def unreadable(at: World) -> None:
    """Spoil the last entry of the log. Nothing later is known, so the log is not trusted."""
    at.lake.write("over", b"3")
    *_, last = at.store.list("log/decided/")
    at.store.put(last.path, b"{}")


def lose_part(at: World) -> None:
    """Remove a part of the checkpoint, as a lifecycle rule might."""
    at.clock.advance(100_000)
    at.lake.maintenance.compact_log()
    [part] = at.store.list("log/checkpoint-parts/")
    at.store.delete(part.path)


def lose_directory(at: World, path: str) -> None:
    found = entry(at, path)
    at.table.delete(KEYS.directory(found.id))
    corrupt(at, found.key)


def leave_undecided(at: World) -> None:
    leave_pending(at, lambda lake: lake.make_directory("left"))
    at.clock.advance(4000)


def forget_directory(at: World) -> None:
    at.lake.make_directory("shell/a")
    at.lake.write("shell/a/f", b"1")
    found = entry(at, "shell/a")
    at.table.delete(found.key)
    at.table.delete(KEYS.directory(found.id))


def wrong_record(at: World) -> None:
    put(at, evolve(directory(at, "empty/b"), name="else"))


def exchange_objects(at: World) -> None:
    """Exchange the objects of two files."""
    first, second = entry(at, "empty/b/1"), entry(at, "empty/b/2")
    put(at, evolve(first, data=second.data))
    put(at, evolve(second, data=first.data))


def move_object(at: World) -> None:
    """Copy the object of a file, remove the original, and let the file name the copy."""
    found = entry(at, "over")
    assert found.data is not None
    copy = at.store.put("abc/abc" + 29 * "7", at.store.get(found.data.path).data)
    at.store.delete(found.data.path)
    put(at, evolve(found, data=evolve(found.data, path=copy.path, etag=copy.etag)))


def name_another_object(at: World) -> None:
    """Let a file name another object, though its own still exists."""
    found = entry(at, "over")
    assert found.data is not None
    other = at.store.put("theirs", b"theirs")
    put(at, evolve(found, data=evolve(found.data, path=other.path, etag=other.etag, size=6)))


def corrupt_with_a_copy(at: World) -> None:
    """Corrupt a directory, and put a copy of it into the wrong shard of a directory in the trash."""
    found = entry(at, "empty/b")
    entries = at.entries(at.table).values()
    trashed = next(each for each in entries if each.key.hash.startswith("lake/e/trash"))
    put(at, evolve(found, key=KEYS.entry(trashed.id, 1, "2")))
    corrupt(at, found.key)


def newer_with_another_object(at: World, *, closed: bool = False) -> None:
    """Write a newer row that names the object of another file.

    If `closed`, nothing can be added to the root.
    """
    found, other = entry(at, "over"), entry(at, "empty/new")
    put(at, evolve(found, version=found.version + 2, data=other.data))
    if closed:
        at.table.delete(guard(at, "").key)


def move_row(at: World, name: str) -> None:
    """Give an entry another name in the same directory."""
    found = entry(at, "over")
    at.table.delete(found.key)
    put(at, evolve(found, key=Key(found.key.hash, name)))


def add_row(at: World, name: str) -> None:
    """Add an entry to the root that is not in the log."""
    theirs = Data.of(at.store.head(at.store.put("theirs", b"2").path))
    key = KEYS.entry(ROOT, shards_of(name, 2, 1)[0], name)
    put(at, evolve(entry(at, "over"), key=key, id="added", data=theirs))


def change_binding(at: World) -> None:
    """Bind a bound directory to another prefix."""
    at.lake.bindings.bind("raw/", "in", max_age=60)
    found = entry(at, "in")
    put(at, evolve(found, binding=Binding(prefix="other/", max_age=60)))


def change_data(at: World, **changes: Any) -> None:
    """Change fields of the object that a file names."""
    found = entry(at, "over")
    assert found.data is not None
    put(at, evolve(found, data=evolve(found.data, **changes)))


def change_kind(at: World, path: str) -> None:
    """Make a directory of a file, or a file of a directory."""
    found = entry(at, path)
    data = entry(at, "over").data if found.is_directory else None
    put(at, evolve(found, data=data))


def put_below_itself(at: World) -> None:
    """Add a second entry of the root in one of its directories."""
    root, inside = entry(at, ""), entry(at, "empty/b")
    put(at, evolve(root, key=KEYS.entry(inside.id, 0, "again")))


def second_record(at: World) -> None:
    """Add a second record of the place of a directory."""
    found = entry(at, "empty/b")
    put(at, Directory(key=Key(KEYS.directory(found.id).hash, "2"), parent=ROOT, name="elsewhere"))


def add_to_guards(at: World) -> None:
    """Put a record under the hash key of a guard record."""
    found = guard(at, "empty")
    put(at, evolve(found, key=Key(found.key.hash, "x"), shards=1))


def entry_over_guard(at: World) -> None:
    """Put an entry in the place of a guard record."""
    at.table.put(evolve(entry(at, "over"), key=guard(at, "empty").key).to_item())


def lose_garbage(at: World) -> None:
    """Remove the records of objects that are to be deleted."""
    at.lake.write("over", b"later")
    for item in list(at.table.scan()):
        if "/x/" in str(item["place"]):
            at.table.delete(at.table.schema.key_of(item))


def lose_mark(at: World) -> None:
    """Remove the object that identifies the store."""
    mark = at.lake.describe(writing=False).identity
    assert mark is not None
    at.store.delete(mark)


def change_marker(at: World, **changes: Any) -> None:
    """Change fields of the metadata record."""
    marker = NamespaceMetadata.from_item(marker_of(at))
    at.table.put({**marker_of(at), "body": evolve(marker, **changes).to_item()["body"]})


def marker_of(at: World) -> Item:
    """Return the item of the metadata record."""
    item = at.table.get(KEYS.metadata)
    assert item is not None
    return item


def spoil_marker(at: World) -> None:
    """Make the metadata record unreadable."""
    at.table.put({**marker_of(at), "body": b"{"})


def spoil_tombstone(at: World, *, logged: bool = True) -> None:
    """Make a tombstone unreadable; with `logged` false, one that is not in the log."""
    at.store.put("raw/a", b"1")
    at.lake.bindings.bind("raw/", "in", max_age=60)
    at.lake.delete("in/a")
    key = KEYS.tombstone(entry(at, "in").id, "a" if logged else "b")
    at.table.put({"place": key.hash, "name": str(key.range), "change_id": "w", "body": b"{"})


def empty_log(at: World, *, but_the_first: bool = False) -> None:
    """Remove all entries of the log, or only the first one."""
    entries = sorted(at.store.list("log/decided/"), key=lambda info: info.last_modified)
    for info in entries[: 1 if but_the_first else None]:
        at.store.delete(info.path)


def cut_log(at: World) -> None:
    """Truncate an entry of the log."""
    *_, last = at.store.list("log/decided/")
    at.store.put(last.path, at.store.get(last.path).data[:40])


def lose_and_take(at: World) -> None:
    """Remove a directory with five files, and write to its path."""
    for number in range(5):
        at.lake.write(f"a/b/{number}", b"%d" % number)
    lose(at, "a/b")
    at.lake.write("a/b/new", b"new")


def without_log(at: World) -> Namespace:
    """Return the namespace as one without a log."""
    change_marker(at, log=None)
    return Namespace(at.table, at.store, "lake", clock=at.clock, backoff=QUICK, grace=0)


def spoil(at: World, random: Random) -> None:
    """Change a random record or two."""
    items = list(at.table.scan())
    entries = [Entry.from_item(item) for item in items if {"id", "body"} <= item.keys()]
    files = [each for each in entries if each.data is not None]
    inside = [each.id for each in entries if each.is_directory] + ["nobody"]
    file, other = random.choice(files), random.choice(files)
    place = KEYS.entry(random.choice(inside), random.randrange(4), random.choice(entries).name)
    match random.randrange(8):
        case 0:
            at.table.delete(at.table.schema.key_of(random.choice(items)))
        case 1:
            put(at, evolve(file, key=place))
        case 2:
            put(at, evolve(file, key=place, id=f"new{random.random()}"))
        case 3:
            put(at, evolve(file, version=file.version + random.choice([1, 2])))
        case 4:
            assert other.data is not None
            put(at, evolve(file, data=evolve(other.data, own=random.random() < 0.5)))
        case 5:
            assert file.data is not None
            key = KEYS.garbage(random.randrange(9), file.data.path)
            put(at, Garbage(key=key, file="x", version=1, change_id="w", not_before=5, data=file.data))
        case 6:
            put(at, evolve(random.choice([each for each in entries if each.is_directory]), key=place))
        case 7:
            states = LogReader.of(at.log).read().states.values()
            logged = {key_of(state.item) for state in states if state.item is not None}
            corrupt(at, random.choice([each for each in entries if each.key in logged]).key)


DAMAGES = {
    "the marker is gone": Damage("no-metadata", lambda at: at.table.delete(KEYS.metadata)),
    "an entry cannot be read": Damage(
        "corrupt-record",
        lambda at: corrupt(at, entry(at, "empty/new").key),
        frozenset({"log-newer", "references-unknown"}),
    ),
    "a directory record cannot be read": Damage(
        "corrupt-record", lambda at: corrupt(at, KEYS.directory(entry(at, "empty").id))
    ),
    "a guard cannot be read": Damage(
        "corrupt-record", lambda at: corrupt(at, KEYS.guard(entry(at, "empty").id, 3))
    ),
    "garbage cannot be read": Damage(
        "corrupt-record",
        lambda at: at.table.put({"place": KEYS.garbage_slot(3), "name": "-", "body": b"{"}),
        frozenset({"references-unknown"}),
    ),
    "neither entry nor record of a directory can be read": Damage(
        "corrupt-record",
        lambda at: lose_directory(at, "empty/b"),
        frozenset({"unreachable-entry", "stray-guard", "log-newer", "references-unknown"}),
    ),
    "something else is there": Damage(
        "strange-record",
        lambda at: at.table.put({"place": "lake/z/1", "name": "-"}),
        left=frozenset({"strange-record", "references-unknown"}),
    ),
    "the root is gone": Damage("no-root", lambda at: lose(at, ""), frozenset({"log-newer"})),
    "a directory has two names": Damage("duplicate-directory", lambda at: twice(at, "d2", more=0)),
    "a directory has two names, the wrong one newer": Damage(
        "duplicate-directory", lambda at: twice(at, "d2", more=5), frozenset({"row-newer"})
    ),
    "a file has two names": Damage(
        "duplicate-file", lambda at: twice(at, "over", more=1), frozenset({"row-newer"})
    ),
    "a file has two names that are alike": Damage(
        "duplicate-file", lambda at: twice(at, "over", more=0)
    ),
    "a directory record is gone": Damage(
        "no-directory-record", lambda at: at.table.delete(KEYS.directory(entry(at, "empty").id))
    ),
    "a directory record is wrong": Damage("wrong-directory-record", wrong_record),
    "the name of a directory is gone": Damage(
        "orphan-directory", lambda at: lose(at, "empty/b"), frozenset({"log-newer"})
    ),
    "the name of an empty directory is gone": Damage(
        "orphan-directory", lambda at: lose(at, "d2"), frozenset({"log-newer"})
    ),
    "nothing is known of a directory": Damage(
        "unreachable-entry", forget_directory, frozenset({"log-newer", "stray-guard"})
    ),
    "a directory is below itself": Damage("cycle", cycle, frozenset({"row-newer"})),
    "a guard is gone": Damage(
        "no-guard", lambda at: at.table.delete(KEYS.guard(entry(at, "empty").id, 2))
    ),
    "a guard is wrong": Damage("wrong-guard", lambda at: put(at, evolve(guard(at, "empty"), shards=1))),
    "a guard is left": Damage("stray-guard", stray_guard),
    "an entry is in the wrong shard": Damage("wrong-shard", wrong_shard, frozenset({"record-differs"})),
    "a name is there twice": Damage("duplicate-name", name_twice, frozenset({"row-newer"})),
    "a file and a directory have one name": Damage("duplicate-name", name_twice_of_either_kind),
    "an object is named twice": Damage("object-shared", object_twice, frozenset({"record-differs"})),
    "content is garbage": Damage("garbage-in-use", lambda at: list_garbage(at, "over")),
    "garbage is listed twice": Damage("duplicate-garbage", listed_twice),
    "a tombstone is left": Damage(
        "stray-tombstone",
        lambda at: put(
            at,
            Tombstone(key=KEYS.tombstone("nobody", "n"), change_id="w", path="n", etag="1", written=1),
        ),
    ),
    "an object is gone": Damage(
        "object-missing", lose_object, left=frozenset({"object-missing"}), lost=1
    ),
    "an object was replaced": Damage(
        "object-changed", replaced, left=frozenset({"object-changed"}), lost=1
    ),
    "others have changed an object": Damage(
        "out-of-date", change_outside, left=frozenset({"out-of-date"})
    ),
    "an object is nobody's": Damage("orphan-object", store_unnamed, only=("orphan-object",)),
    "a record of another namespace is newer": Damage(
        "references-unknown", newer_elsewhere, left=frozenset({"references-unknown"})
    ),
    "an entry is gone": Damage("log-newer", lambda at: lose(at, "over")),
    "an entry is gone, and its path taken": Damage("log-newer", lambda at: take_place(at, "over")),
    "a directory is gone, and its path taken": Damage(
        "log-newer",
        lambda at: take_place(at, "empty/b"),
        frozenset({"orphan-directory", "wrong-directory-record"}),
    ),
    "an entry is where it was, and its new path taken": Damage("log-newer", taken_meanwhile),
    "an entry is older": Damage("log-newer", older, frozenset({"garbage-in-use"})),
    "an entry is back": Damage("log-newer", resurrect),
    "an entry is newer": Damage("row-newer", behind_the_log),
    "the log belongs to another table": Damage(
        "fenced", lambda at: at.restorer(at.lost()).restore(), left=frozenset({"fenced"})
    ),
    "a part of the base is missing": Damage(
        "unreadable-log", lose_part, left=frozenset({"unreadable-log"})
    ),
    "a directory cannot be read, and a copy of it is in the trash": Damage(
        "corrupt-record",
        corrupt_with_a_copy,
        frozenset({"wrong-shard", "wrong-directory-record", "log-newer", "references-unknown"}),
    ),
    "an entry is newer, with another's object, and a copy of it is elsewhere": Damage(
        "duplicate-file",
        lambda at: (newer_with_another_object(at), twice(at, "over", more=0)),
        frozenset({"object-shared", "wrong-shard"}),
        moved=1,
    ),
    "an entry is newer, with another's object": Damage(
        "row-newer", newer_with_another_object, frozenset({"object-shared"}), moved=1
    ),
    "an entry is newer, with another's object, and lost+found cannot be made at once": Damage(
        "row-newer",
        lambda at: newer_with_another_object(at, closed=True),
        frozenset({"object-shared", "no-guard"}),
        moved=1,
    ),
    "an entry of the log cannot be read": Damage(
        "unreadable-log", unreadable, left=frozenset({"unreadable-log"})
    ),
    "a change is pending": Damage("pending-change", leave_undecided),
    "two files have exchanged their objects": Damage("record-differs", exchange_objects),
    "an object was moved by hand": Damage("record-differs", move_object),
    "a file names another object": Damage("record-differs", name_another_object),
    "a file is elsewhere": Damage("record-differs", lambda at: move_row(at, "elsewhere")),
    "a binding is another": Damage("record-differs", change_binding),
    "a file's object is not its own": Damage("record-differs", lambda at: change_data(at, own=False)),
    "a size is another": Damage(
        "record-differs", lambda at: change_data(at, size=7), frozenset({"object-changed"})
    ),
    "a file is a directory": Damage(
        "record-differs",
        lambda at: change_kind(at, "over"),
        frozenset({"no-directory-record", "no-guard"}),
    ),
    "a directory is a file": Damage(
        "record-differs",
        lambda at: change_kind(at, "empty"),
        frozenset({"object-shared"}),
    ),
    "a file has a path for a name": Damage(
        "bad-name", lambda at: move_row(at, "x/y"), frozenset({"record-differs", "wrong-shard"})
    ),
    "a file has dots for a name": Damage(
        "bad-name", lambda at: move_row(at, ".."), frozenset({"record-differs", "wrong-shard"})
    ),
    "an entry that the log has not has a path for a name": Damage(
        "bad-name", lambda at: add_row(at, "x/y"), frozenset({"row-newer"}), moved=1
    ),
    "a file is where jobs are": Damage(
        "bad-name", lambda at: add_row(at, ".staging"), frozenset({"row-newer"}), moved=1
    ),
    "there is something beside a guard": Damage("misplaced-record", add_to_guards),
    "an entry is in the place of a guard": Damage("corrupt-record", entry_over_guard),
    "a directory has two records": Damage("misplaced-record", second_record),
    "the root is below itself": Damage("duplicate-directory", put_below_itself),
    "the root is below itself, without a log": Damage(
        "duplicate-directory", put_below_itself, logged=False
    ),
    "garbage is forgotten": Damage("unlisted-garbage", lose_garbage),
    "the mark is gone": Damage("no-store-identity", lose_mark, only=("no-store-identity",)),
    "the marker names no log": Damage("wrong-metadata", lambda at: change_marker(at, log=None)),
    "the marker names another store": Damage(
        "wrong-metadata", lambda at: change_marker(at, store="memory://x")
    ),
    "the marker cannot be read": Damage("corrupt-record", spoil_marker),
    "a tombstone cannot be read": Damage("corrupt-record", spoil_tombstone),
    "a tombstone that the log has not cannot be read": Damage(
        "corrupt-record", lambda at: spoil_tombstone(at, logged=False)
    ),
    "the log is empty": Damage("wrong-metadata", empty_log, frozenset({"row-newer"})),
    "the first entry of the log is gone": Damage(
        "wrong-metadata", lambda at: empty_log(at, but_the_first=True), frozenset({"row-newer"})
    ),
    "an entry of the log is cut": Damage("unreadable-log", cut_log, left=frozenset({"unreadable-log"})),
    "a directory is lost, and its path taken": Damage(
        "log-newer", lose_and_take, frozenset({"orphan-directory"}), moved=1
    ),
    "a directory is lost, and its path taken, without a log": Damage(
        "orphan-directory", lose_and_take, moved=1, logged=False
    ),
}
