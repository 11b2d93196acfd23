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
from typing import TYPE_CHECKING, TypeVar

import click
from attrs import frozen

from commitlog.cli.connection import Connection
from commitlog.cli.fs import LITERAL
from commitlog.errors import AlreadyExists, ConfigurationError, NotADirectory, NotFound
from commitlog.transfer import NamespacePath

if TYPE_CHECKING:
    from commitlog.namespace import Namespace, Status

__all__ = [
    "LITERAL",
    "Match",
    "Targets",
    "braces",
    "is_container",
    "matches",
    "path_of",
    "pattern_to_regex",
    "url_of",
    "urls_argument",
]

R = TypeVar("R")

_MAGIC = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_ESCAPED = re.compile(r"\\(.)")


@frozen(kw_only=True)
class Match(NamespacePath):
    """A file or directory that a URL, or a pattern in it, matches.

    Attributes:
        matched: its status.
    """

    matched: Status

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.matched.is_directory


class Targets:
    """The targets of a command, which have to differ from each other."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def add(self, target: str, source: str) -> None:
        """Record the target of a source. Raises `AlreadyExists` if another source has this target."""
        if target in self._sources:
            raise AlreadyExists(f"{self._sources[target]} has the same target, {target}")
        self._sources[target] = source


def urls_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Add the argument `urls`, one or more URLs, to `command`."""
    return click.argument("urls", metavar="URL...", nargs=-1, required=True)(command)


def url_of(namespace: Namespace, path: str) -> str:
    """Return the URL of a path of a namespace."""
    return NamespacePath(namespace=namespace, path=path).url


def path_of(connection: Connection, url: str) -> NamespacePath:
    """Return the path that a URL names, without expanding patterns."""
    name, path = _parsed(url)
    return NamespacePath(
        namespace=connection.namespace(name), path=path, directory_only=url.endswith("/")
    )


def is_container(target: NamespacePath, *, several: bool) -> bool:
    """Return whether sources go into the directory `target`; else the source becomes `target`.

    Raises `NotADirectory` if `target` has to be a directory, and `NotFound` if a directory is missing.
    """
    status = target.status()
    if status is not None and status.is_directory:
        return True
    if several:
        raise NotADirectory(f"{target.url} is not a directory: several sources need a directory")
    parent = NamespacePath(namespace=target.namespace, path=target.path.rpartition("/")[0])
    if target.directory_only or (status is None and parent.status() is None):
        missing = target if target.directory_only else parent
        raise NotFound(f'the directory {missing.url} does not exist: make it with "fs mkdir"')
    return False


def matches(connection: Connection, url: str) -> Iterator[Match]:
    """Yield the files and directories that a URL names, sorted by name.

    Patterns are expanded, unless the command has the flag --literal. Raises `NotFound` without a match.
    """
    name, pattern = _parsed(url)
    namespace = connection.namespace(name)
    directory_only = url.endswith("/")
    is_empty = True
    literal = click.get_current_context().meta.get(LITERAL, False)
    for each in [_escaped(pattern)] if literal else braces(pattern):
        for status in _matching(namespace, each):
            match = Match(
                namespace=namespace, path=status.path, directory_only=directory_only, matched=status
            )
            if directory_only and not status.is_directory:
                raise NotADirectory(f"{match.url} is a file")
            is_empty = False
            yield match
    if is_empty:
        raise NotFound(f"{url}: no such file or directory")


def _parsed(url: str) -> tuple[str, str]:
    from commitlog.namespaces import parse_url

    if not url.startswith("commitlog://"):
        raise ConfigurationError(
            "it is not a URL of a namespace, commitlog://NAME/PATH; to transfer local files, use"
            " 'fs put' and 'fs get'"
        )
    if url == "commitlog://":
        raise ConfigurationError(
            "it does not name a namespace; 'commitlog namespace list' lists the namespaces"
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
    """Return the alternatives in the first pair of braces, and their start; ([], 0) without braces."""
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
        match = re.compile(pattern_to_regex(parts[plain])).match
        for each in namespace.list(path):
            if not match(each.name):
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


def pattern_to_regex(part: str) -> str:
    """Return the regular expression for a name with patterns."""

    def unescape(match: re.Match[str]) -> str:
        return f"[{match[1]}]" if match[1] in "*?[" else match[1]

    return fnmatch.translate(_ESCAPED.sub(unescape, part).replace("[^", "[!"))
