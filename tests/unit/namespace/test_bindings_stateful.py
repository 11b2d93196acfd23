"""A directory that others write to, under any series of changes, against a plain model of what it has.

Two clients and those who know nothing of the namespace take turns. Directories are always asked, or
authoritative and synchronised before each step: both ways every file that is to be there is there, with
the content that it should have, and no other.
"""

from __future__ import annotations

from typing import TypeAlias

import pytest
from attrs import define, field, frozen
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from commitlog.errors import ObjectChanged
from commitlog.namespace import Namespace
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, ServiceTable

LAKE = "lake"

#: What others store; no path leads through another one.
OBJECTS = ("raw/a", "raw/b", "raw/d/a", "raw/d/b", "raw/e/a", "raw/e/d/a")
PATHS = tuple(
    f"{top}{rest}"
    for top in ("in/", "")
    for rest in ("a", "b", "d", "e", "d/a", "d/b", "e/a", "e/d", "e/d/a")
)


@frozen
class Version:
    """One content that others have given an object."""

    path: str
    number: int

    @property
    def body(self) -> bytes:
        """What it is."""
        return f"{self.path} {self.number}".encode()


#: What a name is: a directory, own content, or an object that was renamed.
Thing: TypeAlias = "Folder | bytes | Version"


@define(eq=False)
class Folder:
    """A directory: what it has of its own, and what it hides of its prefix."""

    prefix: str | None = None
    own: dict[str, Thing] = field(factory=dict)
    hidden: set[str | Version] = field(factory=set)
    implied: dict[str, Folder] = field(factory=dict)

    def names(self, objects: dict[str, Version]) -> set[str]:
        """Return all names that something may have."""
        found = set(self.own)
        if self.prefix is not None:
            below = (path.removeprefix(self.prefix) for path in objects if path.startswith(self.prefix))
            found |= {path.partition("/")[0] for path in below} | set(self.implied)
        return found

    def has_own(self) -> bool:
        """Tell whether it has anything that does not come from the store, however deep."""
        return bool(self.own) or any(folder.has_own() for folder in self.implied.values())

    def find(self, name: str, objects: dict[str, Version]) -> Thing | None:
        """Return what a name is."""
        if name in self.own:
            return self.own[name]
        if self.prefix is None:
            return None
        path = self.prefix + name
        if path in objects and objects[path] not in self.hidden:
            return objects[path]
        if f"{name}/" in self.hidden:
            return None
        kept = name in self.implied and self.implied[name].has_own()
        if kept or any(each.startswith(f"{path}/") for each in objects):
            return self.implied.setdefault(name, Folder(f"{path}/"))
        return None

    def leave(self, name: str, thing: Thing) -> None:
        """Have something no more."""
        self.own.pop(name, None)
        self.implied.pop(name, None)
        if self.prefix is not None:
            if isinstance(thing, Folder) and thing.prefix == f"{self.prefix}{name}/":
                self.hidden.add(f"{name}/")
            if isinstance(thing, Version) and thing.path == self.prefix + name:
                self.hidden.add(thing)

    def put(self, name: str, thing: Thing) -> None:
        """Have something."""
        if isinstance(thing, Version) and self.prefix is not None and thing.path == self.prefix + name:
            self.own.pop(name, None)  # it is at home, and is what the object is
            self.hidden -= {
                each for each in self.hidden if isinstance(each, Version) and each.path == thing.path
            }
        else:
            self.own[name] = thing

    def make(self, name: str) -> Folder:
        """Have a new directory."""
        bound = self.prefix is not None and f"{name}/" not in self.hidden
        made = self.implied.pop(name, None) or Folder(f"{self.prefix}{name}/" if bound else None)
        self.own[name] = made
        return made


class Together(RuleBasedStateMachine):
    """Draws what they do."""

    @initialize(max_age=st.sampled_from([0.0, None]))
    def begin(self, max_age: float | None) -> None:
        """Bind a directory."""
        self.clock = ManualClock()
        self.table = ServiceTable(clock=self.clock)
        self.store = MemoryStore(clock=self.clock)
        self.store.put("kept", b"")  # a store without any object is not believed
        self.clients = [
            Namespace(self.table, self.store, LAKE, clock=self.clock, backoff=QUICK, grace=0)
            for _ in range(2)
        ]
        self.clients[0].create()
        self.max_age = max_age
        self.clients[0].bindings.bind("raw/", "in", max_age=max_age)
        self.auditor = Auditor(self.table, LAKE)
        self.objects: dict[str, Version] = {}
        self.root = Folder()
        self.root.own["in"] = Folder("raw/")
        self.number = 0

    def client(self, which: int) -> Namespace:
        """Return a client that knows what there is."""
        self.clock.advance(1)
        if self.max_age is None:
            self.clients[1 - which].bindings.sync()
        return self.clients[which]

    def find(self, path: str) -> tuple[Folder | None, str, Thing | None]:
        """Return the directory that a path is in, its name there, and what it is."""
        *above, name = path.split("/")
        folder: Thing | None = self.root
        for each in above:
            folder = folder.find(each, self.objects) if isinstance(folder, Folder) else None
        if not isinstance(folder, Folder):
            return None, name, None
        return folder, name, folder.find(name, self.objects)

    def files(self, folder: Folder, path: str = "") -> dict[str, bytes]:
        """Return the content of all files; b"" of those whose objects are changed, or gone."""
        found: dict[str, bytes] = {}
        for name in folder.names(self.objects):
            thing = folder.find(name, self.objects)
            if isinstance(thing, Folder):
                found |= self.files(thing, f"{path}{name}/")
            elif isinstance(thing, Version):
                found[path + name] = thing.body if self.objects.get(thing.path) == thing else b""
            elif thing is not None:
                found[path + name] = thing
        return found

    def there(self) -> list[str]:
        """Return all files, and the directories that have any, but for the one that is bound."""
        files = self.files(self.root)
        above = {path[:at] for path in files for at, each in enumerate(path) if each == "/"}
        return sorted({*files, *above} - {"in"})

    def some(self, pick: int) -> str:
        """Return one of them."""
        there = self.there()
        assume(there)
        return there[pick % len(there)]

    which = st.integers(0, 1)
    pick = st.integers(0, 999)

    @rule(path=st.sampled_from(OBJECTS))
    def others_put(self, path: str) -> None:
        """Others store an object."""
        self.clock.advance(1)
        self.number += 1
        self.objects[path] = Version(path, self.number)
        self.store.put(path, self.objects[path].body)

    @rule(path=st.sampled_from(OBJECTS))
    def others_delete(self, path: str) -> None:
        """Others remove an object."""
        self.objects.pop(path, None)
        self.store.delete(path)

    @rule(which=which, path=st.sampled_from(PATHS))
    def write(self, which: int, path: str) -> None:
        """Write a file, and what is missing above it."""
        *above, name = path.split("/")
        folder = self.root
        _, _, old = self.find(path)
        assume(not isinstance(old, Folder) and not self.is_empty(path))
        assume(all(self.is_free("/".join(above[: at + 1])) for at in range(len(above))))
        for each in above:
            found = folder.find(each, self.objects)
            folder = found if isinstance(found, Folder) else folder.make(each)
        self.number += 1
        body = f"own {self.number}".encode()
        self.client(which).write(path, body)
        if old is not None:
            folder.leave(name, old)
        folder.own[name] = body

    @rule(which=which, pick=pick)
    def delete(self, which: int, pick: int) -> None:
        """Delete a file, or a directory with all that is in it."""
        path = self.some(pick)
        folder, name, thing = self.find(path)
        assert folder is not None and thing is not None
        self.client(which).delete(path, recursive=True)
        folder.leave(name, thing)

    @rule(which=which, pick=pick, into=pick, name=st.sampled_from("abde"))
    def rename(self, which: int, pick: int, into: int, name: str) -> None:
        """Rename a file, or a directory; a file may replace one."""
        source = self.some(pick)
        folders = ["", "in", *(path for path in self.there() if isinstance(self.find(path)[2], Folder))]
        to = f"{folders[into % len(folders)]}/{name}".lstrip("/")
        assume(source != to and not to.startswith(f"{source}/"))
        here, old, thing = self.find(source)
        there, new, replaced = self.find(to)
        assume(not isinstance(replaced, Folder) and not self.is_empty(to))
        assume(not isinstance(thing, Folder) or replaced is None)
        assert here is not None and there is not None and thing is not None
        self.client(which).rename(source, to, overwrite=True)
        here.leave(old, thing)
        if replaced is not None:
            there.leave(new, replaced)
        there.put(new, thing)

    @rule(which=which, path=st.sampled_from(["", "in", "in/d"]))
    def sync(self, which: int, path: str) -> None:
        """Synchronise."""
        assume(self.is_there(path))
        self.client(which).bindings.sync(path)

    @rule(which=which)
    def prune(self, which: int) -> None:
        """Remove tombstones and files that are of no use."""
        self.client(which).bindings.prune()
        self._prune(self.root)

    def _prune(self, folder: Folder) -> None:
        for name, thing in list(folder.own.items()):
            if isinstance(thing, Version) and thing.path not in self.objects:
                del folder.own[name]
        for each in list(folder.hidden):
            prefix = f"{folder.prefix}{each}"
            if isinstance(each, str) and not any(path.startswith(prefix) for path in self.objects):
                folder.hidden.discard(each)
        for thing in (*folder.own.values(), *folder.implied.values()):
            if isinstance(thing, Folder):
                self._prune(thing)

    @rule(which=which)
    def sweep(self, which: int) -> None:
        """Empty the trash."""
        self.client(which).maintenance.empty_trash()
        self.clients[which].maintenance.gc()

    def is_there(self, path: str) -> bool:
        """Tell whether a directory is there. One that has no files may be there or not."""
        thing = self.find(path)[2] if path else self.root
        return isinstance(thing, Folder) and self.clients[0].exists(path)

    def is_empty(self, path: str) -> bool:
        """Tell whether there is a directory of which nothing is known but that it has been there."""
        return self.find(path)[2] is None and self.clients[0].exists(path)

    def is_free(self, path: str) -> bool:
        """Tell whether something is a directory, or can be."""
        thing = self.find(path)[2]
        return thing is None or isinstance(thing, Folder)

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        """Each client sees what the model has."""
        if not hasattr(self, "root"):
            return
        expected = self.files(self.root)
        for which in (0, 1):
            lake = self.client(which)
            found: dict[str, bytes] = {}
            for each in list(lake.walk()):
                if not each.is_directory:
                    try:
                        found[each.path] = lake.read(each.path)
                    except ObjectChanged:
                        found[each.path] = b""
            assert found == expected
        self.auditor.audit()


FEW = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
Together.TestCase.settings = FEW


class TestTogether(Together.TestCase):  # type: ignore[misc,valid-type]
    """Whatever they do, each client sees what the model has."""


@pytest.mark.campaign
class TestLongTogether(Together.TestCase):  # type: ignore[misc,valid-type]
    """More of it, with new examples each time."""

    settings = settings(FEW, max_examples=5000, derandomize=False)
