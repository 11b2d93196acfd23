"""The page ``docs/runbook.md`` as data, and an operator who follows one of its sections.

A section of a state has these parts, each of which begins with its name in bold: *Symptom*, *Check*,
*Do*, *Loss*, and where needed *Why it is safe* and *Do not*. Commands are in blocks of the language
``console``, with the output that shows the state; the message of an error is a block of the language
``text``. In both, ``…`` stands for any text within a line, and a line ``…`` for any lines.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen
from click.testing import CliRunner

from commitlog.cli import main
from commitlog.clock import SystemClock
from support.markdown import FENCE, without_code
from support.project import ROOT
from support.servers import Server

__all__ = [
    "PAGE",
    "PARTS",
    "FastForward",
    "Operator",
    "Section",
    "Step",
    "at",
    "index",
    "matches",
    "sections",
]

PAGE = ROOT / "docs/runbook.md"

#: The parts of a section; those before *Why it is safe* are in each one.
PARTS = ("Symptom", "Check", "Do", "Loss", "Why it is safe", "Do not")

_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
_GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
_PART = re.compile(rf"^\*\*({'|'.join(PARTS)})\.\*\*", re.MULTILINE)


@frozen
class Step:
    """A command of the page, and the lines that it prints."""

    command: str
    output: tuple[str, ...]


@frozen
class Done:
    """The exit status of a command, and everything that it printed."""

    exit_code: int
    output: str


@frozen
class Section:
    """A section of a state.

    Attributes:
        anchor: the anchor of its heading.
        group: the heading above it.
        parts: the text of each part.
    """

    anchor: str
    group: str
    parts: Mapping[str, str]

    @property
    def messages(self) -> tuple[str, ...]:
        """The messages of errors that are symptoms."""
        return tuple(
            block for language, block in FENCE.findall(self.parts["Symptom"]) if language == "text"
        )

    @property
    def findings(self) -> frozenset[str]:
        """The kinds of findings of ``commitlog status`` that are symptoms."""
        return frozenset(re.findall(r"^! ([\w-]+): ", self.parts["Symptom"], re.MULTILINE))

    def program(self, part: str) -> str:
        """Return the Python program of a part."""
        [block] = [block for language, block in FENCE.findall(self.parts[part]) if language == "python"]
        return block

    def steps(self, part: str) -> tuple[Step, ...]:
        """Return the commands of a part, in order."""
        found: list[Step] = []
        for language, block in FENCE.findall(self.parts[part]):
            if language == "console":
                commands = re.split(r"^\$ ", block, flags=re.MULTILINE)
                for command, *output in map(str.splitlines, commands[1:]):
                    found.append(Step(command, tuple(output)))
        return tuple(found)


def sections() -> Mapping[str, Section]:
    """Return the sections of the page by their anchors."""
    text = PAGE.read_text()
    headings = list(_HEADING.finditer(text))
    found: dict[str, Section] = {}
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        body = text[heading.end() : following.start() if following else len(text)].partition("\n## ")[0]
        names = list(_PART.finditer(body))
        assert names, f"not a section of a state: {heading[1]}"
        parts = {
            name[1]: body[name.end() : end]
            for name, end in zip(names, [*(each.start() for each in names[1:]), len(body)], strict=True)
        }
        anchor = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
        assert anchor not in found, f"two sections have the anchor {anchor}"
        group = _GROUP.findall(text[: heading.start()])[-1]
        found[anchor] = Section(anchor, group, parts)
    return found


def index() -> frozenset[str]:
    """Return the anchors that the index of the page links to."""
    table = without_code(PAGE.read_text()).partition("\n## Index\n")[2].partition("\n## ")[0]
    return frozenset(re.findall(r"\]\(#([\w-]+)\)", table))


def matches(pattern: str, text: str) -> bool:
    """Return whether some lines of `text` are those of `pattern`, in which ``…`` is any text.

    >>> matches("a … c\\n", "first\\na b c\\n"), matches("a …\\n…\\nc\\n", "a b\\n1\\n2\\nc\\n")
    (True, True)
    >>> matches("a\\n", "a b\\n")
    False
    """
    lines = [_SOME_LINES if line == "…" else _expression(line) for line in pattern.splitlines()]
    text = text if text.endswith("\n") else f"{text}\n"
    return re.search("^" + "".join(lines), text, re.MULTILINE) is not None


#: Any number of lines, but as few as possible.
_SOME_LINES = r"(?:[^\n]*\n)*?"


def _expression(line: str) -> str:
    """Return the expression for a line; columns may have another width than on the page."""
    words = (re.escape(word).replace("…", r"[^\n]*") for word in line.split())
    return r"[ ]*" + r"[ ]+".join(words) + r"[ ]*\n"


@define
class FastForward:
    """The machine's clock, in which waiting takes no time, and which a test can advance.

    Commands that run in this process see it. Servers, and processes of their own, do not.
    """

    offset: float = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.offset += seconds

    @contextmanager
    def installed(self) -> Iterator[FastForward]:
        """Replace the machine's clock for a block."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("epoch", "monotonic"):
                patch.setattr(SystemClock, name, self._shifted(getattr(SystemClock, name)))
            patch.setattr(SystemClock, "sleep", lambda _, seconds: self.advance(max(0.0, seconds)))
            yield self

    def _shifted(self, read: Any) -> Any:
        return lambda clock: read(clock) + self.offset


@define(kw_only=True)
class Operator:
    """A person who sees a symptom and follows a section, with the real names of things.

    Use it as a context manager: at the end, every symptom must have been seen, and every command of
    the section must have been run.

    Attributes:
        section: the section.
        names: the real name for each name of the page, such as a URL.
        env: the environment of the commands.
        server: the server of commands of the AWS CLI.
        clock: the clock of the commands.
    """

    section: Section
    names: Mapping[str, str]
    env: dict[str, str] = field(factory=dict)
    server: Server | None = None
    clock: FastForward = field(factory=FastForward)
    _seen: set[int] = field(factory=set, init=False)
    _followed: set[str] = field(factory=set, init=False)

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            assert self._seen == set(range(len(self.section.messages))), "a symptom was not seen"
            assert self._followed == self._parts, "a part of the section was left out"

    @property
    def _parts(self) -> set[str]:
        return {part for part in ("Symptom", "Check", "Do") if self.section.steps(part)}

    def sees(self, error: object, number: int = 0) -> None:
        """Check that an error, or a message, is a symptom of the page.

        Args:
            error: an exception, or the message as the user reads it.
            number: which of the section's messages it is.
        """
        text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        self._compare(self.section.messages[number], text)
        self._seen.add(number)

    def has_seen(self, number: int) -> None:
        """Leave a message out: another test shows it."""
        self._seen.add(number)

    def has_followed(self, *parts: str) -> None:
        """Leave parts out: another test follows them."""
        self._followed.update(parts)

    def looks(self) -> None:
        """Run the commands of *Symptom*, which show the state."""
        self._follow("Symptom", None)

    def checks(self, *, status: int = 0) -> None:
        """Run the commands of *Check*; the last one ends with `status`."""
        self._follow("Check", status)

    def does(self, *, status: int = 0, output: bool = True) -> None:
        """Run the commands of *Do*; each succeeds, but for the last one, which ends with `status`.

        Args:
            status: the exit status.
            output: whether they print what the page shows.
        """
        self._follow("Do", status, output)

    def runs(self, command: str) -> Done:
        """Run a command that is not on the page."""
        return self._run(command)

    def _follow(self, part: str, status: int | None, output: bool = True) -> None:
        steps = self.section.steps(part)
        assert steps, f"no commands: {part}"
        for number, step in enumerate(steps, 1):
            done = self._run(step.command)
            if status is not None and number == len(steps):
                assert done.exit_code == status, done.output
            elif part == "Do":
                assert done.exit_code == 0 or "fsck" in step.command, done.output
            if step.output and output:
                self._compare("\n".join(step.output), done.output)
        self._followed.add(part)

    def _compare(self, expected: str, text: str) -> None:
        text = self._as_on_page(text)
        assert matches(expected, text), f"on the page:\n{expected}\nbut:\n{text}"

    def _run(self, command: str) -> Done:
        command, _, file = command.partition(" > ")
        program, *words = (self._real(word) for word in shlex.split(command))
        if program == "aws":
            return self._run_aws(*words)
        assert program == "commitlog", command
        with self.clock.installed():
            done = CliRunner(env=self.env).invoke(main, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        if file:
            Path(self._real(file)).write_text(done.stdout)
        return Done(done.exit_code, done.stdout + done.stderr)

    def _run_aws(self, service: str, operation: str, *words: str) -> Done:
        """Call the operation that a command of the AWS CLI stands for, with its options."""
        assert self.server is not None
        options = {
            re.sub(r"(?:^-|)-(\w)", lambda letter: letter[1].upper(), name): (
                json.loads(value) if value.startswith("{") else value
            )
            for name, value in zip(words[::2], words[1::2], strict=True)
        }
        done = getattr(self.server.client(service), operation.replace("-", "_"))(**options)
        assert done["ResponseMetadata"]["HTTPStatusCode"] == 200
        return Done(0, "")

    def _real(self, word: str) -> str:
        for name in sorted(self.names, key=len, reverse=True):
            word = word.replace(name, self.names[name])
        return word

    def _as_on_page(self, text: str) -> str:
        for name in sorted(self.names, key=lambda name: len(self.names[name]), reverse=True):
            text = text.replace(self.names[name], name)
        return text


def at(anchor: str, names: Mapping[str, str], *, server: Server | None = None, **env: str) -> Operator:
    """Return an operator who follows a section.

    Args:
        anchor: the anchor of the section.
        names: see `Operator`.
        server: the server to which all commands go; by default none.
        env: further environment variables of the commands.
    """
    if server is not None:
        env = {
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_DEFAULT_REGION": server.region,
            "AWS_ACCESS_KEY_ID": server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
            **env,
        }
    return Operator(section=sections()[anchor], names=names, env=env, server=server)
