"""Mutants: each rule of the protocols is broken once, and the simulator finds a run that goes wrong."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import commitlog
from commitlog.commit import conditional
from commitlog.commit.probe_report import Kind
from commitlog.errors import AlreadyExists
from commitlog.oplog import Decision
from commitlog.stores.memory import MemoryStore
from mutation import namespace_moves
from mutation.edits import Edit
from mutation.lease_timeouts import SURVIVORS
from mutation.library import Library, OutOfDate
from mutation.loader import load
from mutation.mutant import Mutant
from mutation.report import GROUPS, MUTANTS, main, write_report
from mutation.trace_text import format_trace
from support.markdown import broken_links
from support.project import ROOT
from support.selection import in_campaigns, with_all_but

_HERE = Path(__file__).parent

PAGE = ROOT / "docs" / "mutants.md"


def _name(mutant: Mutant) -> str:
    return mutant.name.replace(" ", "-")


#: Mutants whose worlds take seconds. They are not caught by default, but with ``--all``.
LONG = (
    "first record put without a condition",
    "a read-back taken as final without an expiry",
    "a compaction of entries that a recovery needs",
    "a compaction that forgets a removal too early",
    "a compaction that forgets removals after the census",
    "files cleaned when their epoch is planned",
    "a restore whose late requests write after its end",
)

#: Mutants whose worlds take longest, often longer with the unchanged library. Campaigns explore these.
LONGEST = (
    "a restore from a log that was read before its claim",
    "a rewrite of the log that ends after a later one",
    "uploads dropped of an attempt committed between two listings",
    "outcomes at the end of the log taken for earlier ones",
    "a known directory recognised by its id",
    "refusal of a write believed that the record has forgotten",
    "the lease read again instead of renewed",
)


def _caught_by_default() -> list[Any]:
    """Return one of three mutants for the default run, and the others for ``--all``."""
    names = {mutant.name for mutant in MUTANTS[::3]} - {*LONG, *LONGEST}
    return with_all_but(lambda mutant: mutant.name in names, MUTANTS)


#: A mutant in whose world the log is rewritten twice, which no other world of ``--all`` has.
REWRITES = "a rewrite of the log that leaves the rest to an earlier one"


def _unchanged() -> list[Any]:
    """Return the mutants whose worlds the unchanged library passes with ``--all``: one of three."""
    names = {mutant.name for mutant in MUTANTS[::3]} - {*LONGEST} | {REWRITES}
    return [mutant if mutant.name in names else in_campaigns(mutant) for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", _caught_by_default(), ids=_name)
def test_a_mutant_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    """A run of its world goes wrong as expected; the report has the rule, the diff and that run."""
    assert mutant.search().complete
    found = mutant.counterexample()
    assert found.trace
    report = tmp_path / "mutants.md"
    write_report(report, {"Protocol": [mutant]}, [])
    text = report.read_text()
    assert f"```diff\n{mutant.diff()}\n```" in text
    assert re.search(r"^[-+] ", mutant.diff(), re.MULTILINE)
    steps = format_trace(found.trace)
    assert "\n".join([*steps, "judged: "]) in text
    assert f"| {mutant.name} | {found.faults} | {len(steps)} |" in text
    assert not list(broken_links(report))


@pytest.mark.all
@pytest.mark.parametrize("mutant", _unchanged(), ids=_name)
def test_the_unchanged_library_passes_the_same_world(mutant: Mutant) -> None:
    """A copy of the library without the change passes all runs of the world that catches the mutant."""
    unchanged = mutant.search_unchanged()
    assert unchanged.complete
    assert unchanged.ends
    assert not unchanged.violations, unchanged.violations[0].error


@pytest.mark.all
@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.saved], ids=_name)
def test_the_expiry_alone_prevents_the_damage(mutant: Mutant) -> None:
    """If the store enforces the expiry of requests, nothing goes wrong in the same world."""
    found = mutant.search_with_expiry()
    assert found.complete
    assert found.ends
    assert not found.violations


@pytest.mark.parametrize("mutant", SURVIVORS, ids=_name)
def test_another_rule_makes_a_survivor_harmless(mutant: Mutant, tmp_path: Path) -> None:
    """Nothing goes wrong in any run of the world in which the rule is broken."""
    found = mutant.search()
    assert found.complete
    assert found.ends
    assert not found.violations
    report = tmp_path / "mutants.md"
    write_report(report, {}, [mutant])
    assert f"```diff\n{mutant.diff()}\n```" in report.read_text()
    assert not list(broken_links(report))


def test_the_report_has_all_mutants() -> None:
    """Each defined mutant is in one group or among the survivors."""
    modules = [importlib.import_module(f"mutation.{file.stem}") for file in _HERE.glob("[!t]*.py")]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, tuple)]
    defined = {each.name for value in values for each in value if isinstance(each, Mutant)}
    assert sorted(defined) == sorted(mutant.name for mutant in (*MUTANTS, *SURVIVORS))


def test_the_page_counts_the_mutants_of_each_protocol() -> None:
    """The numbers in docs/mutants.md and the README are right; the sources of each group are linked."""
    page = re.sub(r"(?<=\w)\n(?=\w)", " ", PAGE.read_text())
    for title, mutants in GROUPS.items():
        row = re.search(rf"^\| {title} \| (\d+) \| (.*) \|$", page, re.MULTILINE)
        assert row, title
        assert int(row[1]) == len(mutants)
        files = re.findall(r"\]\(\.\./tests/mutation/(\w+)\.py\)", row[2])
        groups = [getattr(importlib.import_module(f"mutation.{file}"), file.upper()) for file in files]
        assert [mutant.name for group in groups for mutant in group] == [each.name for each in mutants]
    assert f"| all | {len(MUTANTS)} |" in page
    assert f"{len(MUTANTS)} deliberately broken protocols" in (ROOT / "README.md").read_text()
    saved = Counter(mutant.saved for mutant in GROUPS["Leases"])
    assert f"{saved[True]} of them harm nothing" in page
    assert f"{saved[None]} break the expiry itself" in page
    assert f"{saved[False]} are wrong either way" in page


def test_the_example_of_the_page_is_a_mutant() -> None:
    """The mutant that docs/mutants.md shows is written as in the sources."""
    code = re.search(r"^```\n(Mutant\(.*?^\))\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code
    assert eval(code[1], vars(namespace_moves)) in MUTANTS


def test_the_command_takes_one_file_at_most() -> None:
    """Other arguments end with the usage, without a search."""
    for arguments in (["--help"], ["a", "b"]):
        with pytest.raises(SystemExit, match="usage"):
            main(arguments)


def test_names_are_distinct() -> None:
    """No two mutants have the same name, or the same rule and change."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.edit, mutant.where) for mutant in MUTANTS}) == len(MUTANTS)


def _modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.startswith("commitlog")}


def test_only_modules_that_depend_on_a_change_are_copied() -> None:
    """The modules in use do not change. A copy raises the same errors and has the same enums."""
    load(Edit(("commit:ProbeReport", "class ProbeReport", None)))  # this imports all modules
    before = _modules()
    code = load(Edit(("Lease.begin_acquire", "self._backoff.retry(", None)))
    assert _modules() == before
    assert commitlog.ConditionalStore is conditional.ConditionalStore
    copy = code.get(conditional.ConditionalStore)
    assert copy is not conditional.ConditionalStore
    assert code.get(Kind) is Kind
    assert load(Edit(("OperationLog.run", "def run", None))).get(Decision) is Decision
    store = copy(MemoryStore())
    store.put_if_absent("a", b"1")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a", b"2")


@pytest.mark.parametrize("snippet", ["no_such_line", "return"])
def test_a_mutant_that_no_longer_fits_raises_an_error(snippet: str) -> None:
    """A snippet that does not occur exactly once is refused, and the error says which and where."""
    with pytest.raises(OutOfDate, match=f"must occur once(?s:.*)\n{snippet}$"):
        load(Edit(("NativeCommitter.run", snippet, "")))
    with pytest.raises(OutOfDate, match=r"makes commitlog\.commit\.native_committer invalid Python"):
        load(Edit(("NativeCommitter", "class NativeCommitter:", "class")))
    with pytest.raises(OutOfDate, match=r"nothing in the library is named NativeCommitter\.nothing"):
        load(Edit(("NativeCommitter.nothing", "", "")))


_HOUSE = {
    "__init__.py": "",
    "rules/__init__.py": "from .inner import Door\n__all__ = ['Door']\n",
    "rules/inner/__init__.py": "from house.rules.inner.door import Door\n",
    "rules/inner/door.py": """\
        from .. import paint

        class Door:
            def is_open(self, key):
                if (
                    key  # the right one
                    == self.key()
                ):
                    return paint.colour()
                return "shut"

            def key(self):
                return 7
        """,
    "rules/paint.py": """\
        COLOUR = "red"

        def colour():
            return COLOUR

        def mix():
            from house.rules.paint import colour
            return colour() * 2
        """,
    "users/__init__.py": "",
    "users/guest.py": """\
        from house.rules import Door

        class Guest:
            def enter(self):
                return Door().is_open(7)

            def mixed(self):
                from house.rules import paint
                return paint.mix()

        def colour():
            return "none"
        """,
    "users/alone.py": "class Alone: pass\n",
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Return a package with nested packages, facades, relative imports, and imports in functions."""
    for name, text in _HOUSE.items():
        file = tmp_path / "house" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    yield Library("house", tmp_path / "house", ("rules", "users"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]


def _guest(house: Library, *changes: tuple[str, str, str | None]) -> Any:
    guest = importlib.import_module("house.users.guest").Guest
    return load(Edit(*changes), house).get(guest)()


def test_a_change_reaches_all_modules_that_import_it(house: Library) -> None:
    """It reaches them through facades, relative imports, module attributes, and imports in functions."""
    guest = _guest(house, ("COLOUR", 'COLOUR = "red"', 'COLOUR = "blue"'))
    assert guest.enter() == "blue"
    assert guest.mixed() == "blueblue"
    original = importlib.import_module("house.users.guest").Guest()
    assert original.enter() == "red"
    assert original.mixed() == "redred"
    alone = importlib.import_module("house.users.alone").Alone
    assert load(Edit(("COLOUR", "COLOUR", None)), house).get(alone) is alone


def test_a_snippet_fits_in_any_layout(house: Library) -> None:
    """Line breaks, comments and indentation do not matter; the new lines are indented as the old."""
    before = "if key == self.key():\n    return paint.colour()"
    after = "if key != self.key():\n    self.tried = True\n    return 'wrong'"
    assert _guest(house, ("Door.is_open", before, after)).enter() == "shut"
    assert _guest(house, ("Door.is_open", before, "")).enter() == "shut"
    assert _guest(house, ("Door.is_open", "if key == self.key()", "if False")).enter() == "shut"
    assert _guest(house, ("Door.is_open", "== self.key()", "!= 7")).enter() == "shut"
    with pytest.raises(OutOfDate, match="invalid Python"):
        _guest(house, ("Door.is_open", "if key", "if False"))
    assert _guest(house, ("Door.key", "7", "(\n    8\n)")).enter() == "shut"


def test_an_anchor_names_one_definition(house: Library) -> None:
    """A name that several modules define needs a package, and the error says so."""
    assert [each.module for each in house.find("rules:colour")] == ["house.rules.paint"]
    assert [each.module for each in house.find("Door.key")] == ["house.rules.inner.door"]
    assert [each.module for each in house.find("rules.inner:Door.key")] == ["house.rules.inner.door"]
    with pytest.raises(
        OutOfDate, match=r"2 modules define colour: rules\.paint, users\.guest; put a package"
    ):
        house.find("colour")
    with pytest.raises(OutOfDate, match="nothing in the library is named users:Door"):
        house.find("users:Door")
