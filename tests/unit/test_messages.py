"""Error messages and the help of the command line are in plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import click
import pytest

from commitlog.cli import main
from support.commands import commands
from support.source import MODULES, Module

#: Phrases that have to be read twice, with what to write instead.
MANNERED = {
    r"(?:no|some|any)body|who(?:so)?ever": "name the client, user or process",
    r"anew|as ever|for good|all the same|by now|beside": "again, always, permanently, now, besides",
    r"told|tells? (?:of|rightly|apart)|hears? of": "report, return or distinguish",
    r"(?:be|is|are) so|be it": "hold, or match",
    r"what (?:is|it|was|were|has|have|they|there|became?|becomes|comes?|goes)": "name the thing",
    r"(?<!there )(?:is|are) no (?!longer|more)": "is not a",
    r"(?:is|are) none\b": "must be one of",
    r"bears?\b": "have, or contain",
    r"as far as is known": "apparently, or leave it out",
    r"see to it|spell it|let it be": "make sure, write or remove",
    r"broken off|given up|passed over|ruled out|forgotten": "interrupted, stopped, skipped, aborted",
    r"overruled|go together|by as (?:little|much|many) as": "use the term",
}
_MANNERED = re.compile(rf"\b(?:{'|'.join(MANNERED)})\b", re.IGNORECASE)


def _messages(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the sentences among the strings of a module, with their lines, and {} for values."""
    skipped = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr):  # docstrings
            skipped.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
    for node in ast.walk(module.tree):
        if node in skipped:
            continue
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if " " in text:
            yield node.lineno, text


def _help(command: click.Command, *, width: int = 100) -> str:
    """Return the page of help of a command."""
    return command.get_help(click.Context(command, terminal_width=width, max_content_width=width))


def test_messages_are_plain() -> None:
    """No error message, log message or label has a mannered phrase."""
    found = [
        f"{module.file.name}:{line}: {match[0]!r} in {text!r}"
        for module in MODULES.values()
        for line, text in _messages(module)
        for match in _MANNERED.finditer(text)
    ]
    assert not found


def test_help_is_plain() -> None:
    """No help text has a mannered phrase."""
    texts = {path: " ".join(_help(command).split()) for path, command in commands(main, "commitlog")}
    assert len(texts) > 60
    found = [
        f"{path}: {match[0]!r} in {text[: match.end()][-60:]!r}"
        for path, text in texts.items()
        for match in _MANNERED.finditer(text)
    ]
    assert not found


def test_lines_of_groups_are_whole() -> None:
    """The list of commands of a group has a whole line for each command."""
    groups = [each for _, each in commands(main, "commitlog") if isinstance(each, click.Group)]
    assert len(groups) > 8
    cut = [
        line
        for group in groups
        for line in _help(group, width=80).splitlines()[1:]
        if line.endswith("...")
    ]
    assert not cut


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no size",
        "mode 'x' is none of append, error",
        "the URL bears credentials",
        "others changed what is below 'a'",
        "Nobody holds the lease",
    ],
)
def test_mannered_phrases_are_found(text: str) -> None:
    """The patterns match the phrases that they are for."""
    assert _MANNERED.search(text)


@pytest.mark.parametrize(
    "text", ["there is no object 'a'", "the file is no longer there", "there are no more pages"]
)
def test_plain_phrases_are_not_found(text: str) -> None:
    """The patterns leave plain negations alone."""
    assert not _MANNERED.search(text)
