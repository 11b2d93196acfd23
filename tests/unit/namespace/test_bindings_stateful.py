"""A bound directory under random series of changes, compared with a simple model.

Two clients and other programs act in turn. The directory always asks the store, or is authoritative and
synchronised before each step. In both cases it has exactly the files of the model, with their content.
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
from support.selection import examples

LAKE = "lake"

#: Objects of other programs; no path is below another one.
OBJECTS = ("raw/a", "raw/b", "raw/d/a", "raw/d/b", "raw/e/a", "raw/e/d/a")
PATHS = tuple(
    f"{top}{rest}"
    for top in ("in/", "")
    for rest in ("a", "b", "d", "e", "d/a", "d/b", "e/a", "e/d", "e/d/a")
)


@frozen
class Version:
    """One content of an object that another program stores."""

    path: str
    number: int

    @property
    def body(self) -> bytes:
        """The content."""
        return f"{self.path} {self.number}".encode()


#: The value of a name: a directory, own content, or an object that was renamed.
Thing: TypeAlias = "Folder | bytes | Version"


@define(eq=False)
class Folder:
    """A directory: its own entries, and the entries of its prefix that it hides."""

    prefix: str | None = None
    own: dict[str, Thing] = field(factory=dict)
    hidden: set[str | Version] = field(factory=set)
    implied: dict[str, Folder] = field(factory=dict)

    def names(self, objects: dict[str, Version]) -> set[str]:
        """Return all names that may have a value."""
        found = set(self.own)
        if self.prefix is not None:
            below = (path.removeprefix(self.prefix) for path in objects if path.startswith(self.prefix))
            found |= {path.partition("/")[0] for path in below} | set(self.implied)
        return found

    def has_own(self) -> bool:
        """Return whether it has any entry that does not come from the store, at any depth."""
        return bool(self.own) or any(folder.has_own() for folder in self.implied.values())

    def find(self, name: str, objects: dict[str, Version]) -> Thing | None:
        """Return the value of a name."""
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
        """Remove an entry."""
        self.own.pop(name, None)
        self.implied.pop(name, None)
        if self.prefix is not None:
            if isinstance(thing, Folder) and thing.prefix == f"{self.prefix}{name}/":
                self.hidden.add(f"{name}/")
            if isinstance(thing, Version) and thing.path == self.prefix + name:
                self.hidden.add(thing)

    def put(self, name: str, thing: Thing) -> None:
        """Add an entry."""
        if isinstance(thing, Version) and self.prefix is not None and thing.path == self.prefix + name:
            self.own.pop(name, None)  # at its backing path it follows the object
            self.hidden -= {
                each for each in self.hidden if isinstance(each, Version) and each.path == thing.path
            }
        else:
            self.own[name] = thing

    def make(self, name: str) -> Folder:
        """Add a new directory."""
        bound = self.prefix is not None and f"{name}/" not in self.hidden
        made = self.implied.pop(name, None) or Folder(f"{self.prefix}{name}/" if bound else None)
        self.own[name] = made
        return made


class Together(RuleBasedStateMachine):
    """Draws the steps of all clients and programs."""

    @initialize(max_age=st.sampled_from([0.0, None]))
    def begin(self, max_age: float | None) -> None:
        """Bind a directory."""
        self.clock = ManualClock()
        self.table = ServiceTable(clock=self.clock)
        self.store = MemoryStore(clock=self.clock)
        self.store.put("kept", b"")  # an empty store is not trusted
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
        """Return a client that knows the current state."""
        self.clock.advance(1)
        if self.max_age is None:
            self.clients[1 - which].bindings.sync()
        return self.clients[which]

    def find(self, path: str) -> tuple[Folder | None, str, Thing | None]:
        """Return the directory of a path, the last name of the path, and its value."""
        *above, name = path.split("/")
        folder: Thing | None = self.root
        for each in above:
            folder = folder.find(each, self.objects) if isinstance(folder, Folder) else None
        if not isinstance(folder, Folder):
            return None, name, None
        return folder, name, folder.find(name, self.objects)

    def files(self, folder: Folder, path: str = "") -> dict[str, bytes]:
        """Return the content of all files; b"" for those whose objects changed or are gone."""
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
        """Return all files and the directories that have any, except the bound one."""
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
        """Store an object, as another program."""
        self.clock.advance(1)
        self.number += 1
        self.objects[path] = Version(path, self.number)
        self.store.put(path, self.objects[path].body)

    @rule(path=st.sampled_from(OBJECTS))
    def others_delete(self, path: str) -> None:
        """Remove an object, as another program."""
        self.objects.pop(path, None)
        self.store.delete(path)

    @rule(which=which, path=st.sampled_from(PATHS))
    def write(self, which: int, path: str) -> None:
        """Write a file, and make its parent directories."""
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
        """Delete a file, or a directory with all its entries."""
        path = self.some(pick)
        folder, name, thing = self.find(path)
        assert folder is not None and thing is not None
        self.client(which).delete(path, recursive=True)
        folder.leave(name, thing)

    @rule(which=which, pick=pick, into=pick, name=st.sampled_from("abde"))
    def rename(self, which: int, pick: int, into: int, name: str) -> None:
        """Rename a file or a directory; a file may replace a file."""
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
        """Synchronise a directory."""
        assume(self.is_there(path))
        self.client(which).bindings.sync(path)

    @rule(which=which)
    def prune(self, which: int) -> None:
        """Remove useless tombstones and files."""
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
        """Return whether a directory exists. A directory without files may exist or not."""
        thing = self.find(path)[2] if path else self.root
        return isinstance(thing, Folder) and self.clients[0].exists(path)

    def is_empty(self, path: str) -> bool:
        """Return whether a directory exists of which the model has no entry."""
        return self.find(path)[2] is None and self.clients[0].exists(path)

    def is_free(self, path: str) -> bool:
        """Return whether a path is a directory, or is free."""
        thing = self.find(path)[2]
        return thing is None or isinstance(thing, Folder)

    @invariant()
    def clients_see_the_model(self) -> None:
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
    max_examples=examples(12, 40),
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
Together.TestCase.settings = FEW


class TestTogether(Together.TestCase):  # type: ignore[misc,valid-type]
    """After any series of steps, each client sees the files of the model."""


@pytest.mark.campaign
class TestLongTogether(Together.TestCase):  # type: ignore[misc,valid-type]
    """More examples, different each time."""

    settings = settings(FEW, max_examples=5000, derandomize=False)
