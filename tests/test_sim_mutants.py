"""The checker can fail: each rule of the protocols is broken once, and the simulator finds out."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from mutants.loader import Edit, OutOfDate, load
from mutants.mutant import Mutant
from mutants.page import MUTANTS, PAGE, frame, row, section, spare
from mutants.waiting import SPARE

import commitlog
from commitlog.commit import conditional
from commitlog.errors import AlreadyExists
from commitlog.stores.memory import MemoryStore

ANEW = "run: PYTHONPATH=tests python -m mutants.page"


def _name(mutant: Mutant) -> str:
    return mutant.name.replace(" ", "-")


@pytest.mark.parametrize("mutant", MUTANTS, ids=_name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """In some run of its world something goes wrong; the judge says what, docs/mutants.md shows it."""
    assert mutant.search().complete
    assert mutant.counterexample().trace
    page = PAGE.read_text()
    assert section(mutant) in page, ANEW
    assert row(mutant) in page.splitlines(), ANEW


@pytest.mark.parametrize("mutant", MUTANTS, ids=_name)
def test_the_library_as_it_is_passes_the_same_world(mutant: Mutant) -> None:
    """A copy of the library without the change passes all runs of the world that catches the mutant."""
    unchanged = mutant.search_unchanged()
    assert unchanged.complete
    assert unchanged.ends
    assert not unchanged.violations, unchanged.violations[0].error


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.saved], ids=_name)
def test_the_expiry_saves_what_the_page_says(mutant: Mutant) -> None:
    """If the store enforces the expiry of requests, nothing goes wrong in the same world."""
    found = mutant.search_with_expiry()
    assert found.complete
    assert found.ends
    assert not found.violations


@pytest.mark.parametrize("mutant", SPARE, ids=_name)
def test_something_else_stands_in_for_a_spare_rule(mutant: Mutant) -> None:
    """Nothing goes wrong in any run of the world in which the rule is broken."""
    found = mutant.search()
    assert found.complete
    assert found.ends
    assert not found.violations
    assert spare(mutant) in PAGE.read_text(), ANEW


def test_the_page_has_all_of_them_and_nothing_else() -> None:
    """Each mutant has its section and its line in docs/mutants.md, in order; the rest is as written."""
    assert frame(PAGE.read_text()) == frame(), ANEW


def test_names_are_distinct() -> None:
    """No two mutants have one name, and none is there twice."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.edit, mutant.where) for mutant in MUTANTS}) == len(MUTANTS)


def _modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.startswith("commitlog")}


def test_a_copy_is_one_of_what_depends_on_the_change_alone() -> None:
    """The modules in use stay as they are; a copy raises the same errors and has the same enums."""
    load(Edit("commit.verdict"))  # by now, all modules are imported
    before = _modules()
    code = load(Edit("commit.lease", ("raise Unavailable(", "raise Unavailable( ")))
    assert _modules() == before
    assert commitlog.ConditionalStore is conditional.ConditionalStore
    copy = code.get("commit.conditional.ConditionalStore")
    assert copy is not conditional.ConditionalStore
    assert code.get("commit.verdict.Kind") is before["commitlog.commit.verdict"].Kind
    assert load(Edit("oplog.log")).get("oplog.log.Decision") is before["commitlog.oplog.log"].Decision
    store = copy(MemoryStore())
    store.put_if_absent("a", b"1")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a", b"2")


@pytest.mark.parametrize("snippet", ["no such line", "return"])
def test_a_mutant_that_no_longer_fits_says_so(snippet: str) -> None:
    """Lines that do not occur exactly once are refused, and the error says which and where."""
    with pytest.raises(OutOfDate, match=f"commitlog.commit.native, and should once(?s:.*)\n{snippet}$"):
        load(Edit("commit.native", (snippet, "")))
    with pytest.raises(OutOfDate, match=r"commitlog\.commit\.native is no Python any more"):
        load(Edit("commit.native", ("class NativeCommitter:", "class")))
    with pytest.raises(OutOfDate, match=r"there is no module commitlog\.commit\.nothing"):
        load(Edit("commit.nothing"))
