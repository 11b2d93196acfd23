"""The URLs of a command's arguments, and the patterns in them.

Patterns are those of Hadoop's shell: ``*``, ``?``, ``[a-c]``, ``[^a-c]`` within a name, and ``{a,b}``. A
backslash escapes a character. Patterns find existing files and directories; the names of new ones are
plain text. No pattern matches the directory of unfinished jobs.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

import click
from attrs import frozen

from commitlog.cli.connection import Connection
from commitlog.cli.fs import LITERAL
from commitlog.errors import AlreadyExists, ConfigurationError, NotADirectory, NotFound
from commitlog.namespace import Namespace, Status
from commitlog.namespaces import parse_url
from commitlog.paths import join

__all__ = [
    "LITERAL",
    "Found",
    "Goals",
    "Spot",
    "braces",
    "expression",
    "found",
    "spot",
    "url_of",
    "urls_argument",
]

R = TypeVar("R")

_MAGIC = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_ESCAPED = re.compile(r"\\(.)")


@frozen(kw_only=True)
class Spot:
    """A path in a namespace, of an existing or a new file or directory.

    Attributes:
        namespace: the namespace.
        path: the path in the namespace.
        inside: whether the URL ended in a slash, so that it can only name a directory.
    """

    namespace: Namespace
    path: str
    inside: bool = False

    @property
    def url(self) -> str:
        """The URL of the path."""
        return url_of(self.namespace, self.path)

    @property
    def name(self) -> str:
        """The last name in the path; "" for the root."""
        return self.path.rpartition("/")[2]

    def below(self, name: str) -> Spot:
        """Return the path of a name, or of a relative path, in this directory."""
        return Spot(namespace=self.namespace, path=join(self.path, name))

    def status(self) -> Status | None:
        """Return the status of the file or directory at the path, or None."""
        try:
            status = self.namespace.stat(self.path)
        except NotFound:
            return None
        if self.inside and not status.is_directory:
            raise NotADirectory(f"{self.url} is a file")
        return status


@frozen(kw_only=True)
class Found(Spot):
    """A file or directory that a URL, or a pattern in it, has matched."""

    known: Status

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.known.is_directory


class Goals:
    """The targets of a command, which have to differ from each other."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def take(self, goal: str, what: str) -> None:
        """Record `goal` as the target of `what`. Raises `AlreadyExists` if it is another's target."""
        if goal in self._taken:
            raise AlreadyExists(
                f"{self._taken[goal]} goes to {goal}, too: two sources of one name are not put in one"
                " place"
            )
        self._taken[goal] = what


def urls_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Add the argument `urls`, one or more URLs, to `command`."""
    return click.argument("urls", metavar="URL...", nargs=-1, required=True)(command)


def url_of(namespace: Namespace, path: str) -> str:
    """Return the URL of a path of a namespace."""
    return f"commitlog://{namespace.name}/{path}"


def spot(connection: Connection, url: str) -> Spot:
    """Return the path that a URL names, without expanding patterns."""
    name, path = _parsed(url)
    return Spot(namespace=connection.namespace(name), path=path, inside=url.endswith("/"))


def found(connection: Connection, url: str) -> Iterator[Found]:
    """Yield the files and directories that a URL names, sorted by name.

    Patterns are expanded, unless the command has the flag --literal. Raises `NotFound` without a match.
    """
    name, pattern = _parsed(url)
    namespace = connection.namespace(name)
    nothing = True
    literal = click.get_current_context().meta.get(LITERAL, False)
    for each in [_escaped(pattern)] if literal else braces(pattern):
        for status in _matching(namespace, each):
            at = Spot(namespace=namespace, path=status.path, inside=url.endswith("/"))
            if at.inside and not status.is_directory:
                raise NotADirectory(f"{at.url} is a file")
            nothing = False
            yield Found(namespace=namespace, path=status.path, inside=at.inside, known=status)
    if nothing:
        raise NotFound(f"{url}: nothing has such a name")


def _parsed(url: str) -> tuple[str, str]:
    if not url.startswith("commitlog://"):
        raise ConfigurationError(
            "it is no URL of a namespace, commitlog://NAME/PATH; 'fs put' uploads what is on this"
            " machine, and 'fs get' downloads to it"
        )
    if url == "commitlog://":
        raise ConfigurationError(
            "it names no namespace; 'commitlog namespace list' tells which there are"
        )
    return parse_url(url)


def braces(pattern: str) -> Iterator[str]:
    r"""Expand the braces of `pattern`: yield one pattern for each alternative.

    >>> list(braces("a{b,c{d,e}}f")), list(braces(r"\{a,b}"))
    (['abf', 'acdf', 'acef'], ['\\{a,b}'])
    """
    parts, start = _alternatives(pattern)
    if not parts:
        yield pattern
        return
    before, behind = pattern[:start], pattern[start + sum(map(len, parts)) + len(parts) + 1 :]
    for part in parts:
        yield from braces(before + part + behind)


def _alternatives(pattern: str) -> tuple[list[str], int]:
    """Return the alternatives in the first pair of braces and their start; nothing without braces."""
    opened: list[int] = []
    commas: list[int] = []
    at = 0
    while at < len(pattern):
        match pattern[at]:
            case "\\":
                at += 1
            case "{":
                opened.append(at)
            case "," if len(opened) == 1:
                commas.append(at)
            case "}" if opened:
                start = opened.pop()
                if not opened:
                    cuts = [start, *commas, at]
                    return [pattern[one + 1 : two] for one, two in pairwise(cuts)], start
        at += 1
    return [], 0


def _matching(namespace: Namespace, pattern: str) -> Iterator[Status]:
    parts = pattern.split("/") if pattern else []
    plain = 0
    while plain < len(parts) and not _MAGIC.search(parts[plain]):
        plain += 1
    path = "/".join(map(_literal, parts[:plain]))
    try:
        status = namespace.stat(path)
    except NotFound:
        return
    if plain == len(parts):
        yield status
    elif status.is_directory:
        matches = re.compile(expression(parts[plain])).match
        for each in namespace.list(path):
            if not matches(each.name):
                continue
            if plain == len(parts) - 1:
                yield each
            elif each.is_directory:
                rest = "/".join(parts[plain + 1 :])
                yield from _matching(namespace, f"{_escaped(each.path)}/{rest}")


def _literal(part: str) -> str:
    return _ESCAPED.sub(r"\1", part)


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[])", r"\\\1", path)


def expression(part: str) -> str:
    """Return the regular expression for a name with patterns."""

    def taken_for_itself(match: re.Match[str]) -> str:
        return f"[{match[1]}]" if match[1] in "*?[" else match[1]

    return fnmatch.translate(_ESCAPED.sub(taken_for_itself, part).replace("[^", "[!"))
