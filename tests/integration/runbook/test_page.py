"""The runbook is complete: states, tests, findings of ``commitlog status``, and its index agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog.status import FINDING_KINDS
from support.runbook import PARTS, Section, index, sections

#: Commands that only read.
READING = tuple(
    f"commitlog {words} "
    for words in (
        "status",
        "ls",
        "lease list",
        "output log",
        "fs ls",
        "namespace describe",
        "namespace fsck",
        "ingest status",
        "ingest files",
    )
)


def _tested() -> Iterator[str]:
    """Yield the anchors in the tests next to this one, for each test that follows the section."""
    for file in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                yield from sections().keys() & texts


def test_each_section_has_a_test() -> None:
    """A test names the section that it follows."""
    assert set(_tested()) == set(sections())


def test_the_index_has_each_section() -> None:
    """A state is found without reading the whole page."""
    assert index() == set(sections())


@pytest.mark.parametrize("section", sections().values(), ids=lambda section: section.anchor)
def test_a_section_has_its_parts(section: Section) -> None:
    """In the same order, and each with the answer."""
    names = list(section.parts)
    assert names == [part for part in PARTS if part in names]
    assert {"Symptom", "Check", "Do", "Loss"} <= set(names)
    assert section.messages or section.steps("Symptom")
    assert section.steps("Check") or section.steps("Do")


@pytest.mark.parametrize("section", sections().values(), ids=lambda section: section.anchor)
def test_a_check_changes_nothing(section: Section) -> None:
    """Its commands only read, or are dry runs."""
    for step in section.steps("Check"):
        reads = step.command.startswith(READING) and "--repair" not in step.command
        assert reads or "--dry-run" in step.command, step.command


def test_each_finding_has_a_section() -> None:
    """A kind of finding is the symptom of a state of each kind of target."""
    targets = {"Leases": "leases", "Outputs": "output", "Namespaces": "namespace", "Ingest": "ingest"}
    shown = {
        (kind, targets[section.group])
        for section in sections().values()
        for kind in section.findings
        if section.group in targets
    }
    assert shown == {(kind.name, target) for kind in FINDING_KINDS.values() for target in kind.targets}


def test_messages_are_on_one_line() -> None:
    """A message that is copied into a search of the page is found."""
    for section in sections().values():
        for message in section.messages:
            assert message.count("\n") == 1, message
