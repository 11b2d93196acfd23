"""Which files and directories of namespaces a command names: URLs, and patterns in them.

Patterns are those of Hadoop's shell: ``*``, ``?``, ``[a-c]``, ``[^a-c]`` within a name, and ``{a,b}``; a
backslash takes a character for itself. They are for what is looked for; what is to be made is named by
plain text. None finds the directory of jobs that are under way. Imports how namespaces are opened, and
errors.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

import click
from attrs import frozen

from commitlog.absence import is_absent
from commitlog.cli.connection import Connection
from commitlog.errors import AlreadyExists, ConfigurationError, NotADirectory, NotFound
from commitlog.mount import parse_url
from commitlog.namespace import Namespace, Status
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

#: Where the context of a command says whether URLs are taken without patterns.
LITERAL = f"{__name__}.literal"

_MAGIC = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_ESCAPED = re.compile(r"\\(.)")


@frozen(kw_only=True)
class Spot:
    """A path of a namespace, at which something is, or is to be.

    Attributes:
        namespace: which.
        path: as the namespace takes it.
        inside: whether the URL ended in a slash, so that only a directory can be meant.
    """

    namespace: Namespace
    path: str
    inside: bool = False

    @property
    def url(self) -> str:
        """The URL, as it is shown."""
        return url_of(self.namespace, self.path)

    @property
    def name(self) -> str:
        """The last name of the path; "" for the root."""
        return self.path.rpartition("/")[2]

    def below(self, name: str) -> Spot:
        """Return the spot of that name, or relative path, in it as a directory."""
        return Spot(namespace=self.namespace, path=join(self.path, name))

    def status(self) -> Status | None:
        """Return what is there, or None."""
        try:
            status = self.namespace.stat(self.path)
        except NotFound as error:
            if not is_absent(error):
                raise
            return None
        if self.inside and not status.is_directory:
            raise NotADirectory(f"{self.url} is a file")
        return status


@frozen(kw_only=True)
class Found(Spot):
    """What a URL, or a pattern in it, has led to."""

    known: Status

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.known.is_directory


class Goals:
    """Where things go, each to a place of its own."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def take(self, goal: str, what: str) -> None:
        """Note that `what` goes to `goal`; raise `AlreadyExists` if something else does."""
        if goal in self._taken:
            raise AlreadyExists(
                f"{self._taken[goal]} goes to {goal}, too: two sources of one name are not put in one"
                " place"
            )
        self._taken[goal] = what


def urls_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Give `command` the URLs that it is about, as its argument `urls`."""
    return click.argument("urls", metavar="URL...", nargs=-1, required=True)(command)


def url_of(namespace: Namespace, path: str) -> str:
    """Return the URL of a path of a namespace."""
    return f"commitlog://{namespace.name}/{path}"


def spot(connection: Connection, url: str) -> Spot:
    """Return what a URL names, taken as plain text."""
    name, path = _parsed(url)
    return Spot(namespace=connection.namespace(name), path=path, inside=url.endswith("/"))


def found(connection: Connection, url: str) -> Iterator[Found]:
    """Yield all that a URL names, patterns expanded, by name; without them if the command is so told.

    Raises `NotFound` if there is nothing.
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
    r"""Yield the patterns that `pattern` stands for, one for each of its alternatives.

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
    """Return what the first pair of braces has, and where that begins; nothing if there is none."""
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
    except NotFound as error:
        if not is_absent(error):
            raise
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
    """Return the regular expression of a name that has patterns."""

    def taken_for_itself(match: re.Match[str]) -> str:
        return f"[{match[1]}]" if match[1] in "*?[" else match[1]

    return fnmatch.translate(_ESCAPED.sub(taken_for_itself, part).replace("[^", "[!"))
