"""Filter of the object names that a source reads: globs over paths and over file names."""

from __future__ import annotations

import re

from attrs import Attribute, field, frozen

from commitlog.errors import ConfigurationError
from commitlog.oplog.validate import text

__all__ = ["PathFilter", "check_flag"]

_SPECIAL = re.compile(r"[*?\[{\\]")
_MEMBER = re.compile("(.)-(.)|(.)", re.DOTALL)
"""A range or a single character within brackets."""


def _member(found: re.Match[str]) -> str:
    """Return the range or the character `found`, escaped for a set of a regular expression."""
    return "-".join(re.escape(char) for char in found.groups() if char is not None)


def check_flag(_self: object, attribute: Attribute[bool], value: object) -> None:
    """Raise `ConfigurationError` unless the value of an attribute is a bool. A validator of attrs."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{attribute.name} must be True or False, not {value!r}")


def _pattern(glob: str, which: str) -> re.Pattern[str]:
    """Return a regular expression for `glob`: Hadoop's syntax, plus ``**`` for any depth.

    `which`: the name of the attribute, for messages.
    """
    try:
        text(glob)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{which} must be a valid text, not {glob!r}") from error
    out: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "*":
            if glob[at : at + 1] == "*":
                begins = at == 1 or glob[at - 2] in "/{,"
                at += 1
                if begins and glob[at : at + 1] == "/":  # "a/**/b" also matches "a/b"
                    at += 1
                    out.append("(?:.*/)?")
                else:
                    out.append(".*")
            else:
                out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            end = glob.find("]", at + 1 + (glob[at : at + 1] in ("!", "^")))
            if end < 0:
                raise ConfigurationError(f"glob {glob!r} has a '[' without its ']'")
            inside = glob[at:end]
            negated = inside[:1] in ("!", "^")
            members = _MEMBER.sub(_member, inside[negated:])
            out.append(f"(?!/)[{'^' * negated}{members}]")
            at = end + 1
        elif char == "{":
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        elif char == "\\" and at < len(glob):
            out.append(re.escape(glob[at]))
            at += 1
        else:
            out.append(re.escape(char))
    if depth:
        raise ConfigurationError(f"glob {glob!r} has a '{{' without its '}}'")
    try:
        return re.compile("".join(out), re.DOTALL)
    except (re.error, RecursionError) as error:
        raise ConfigurationError(f"glob {glob!r} is not valid: {error}") from None


@frozen(kw_only=True)
class PathFilter:
    """A filter of object names. A name must pass all conditions that are set.

    Attributes:
        glob: glob for the path below the prefix. ``*`` and ``?`` match within a segment, ``**`` across
            segments. ``[a-c]``, ``[!a]`` and ``{json,csv}`` work, and a backslash escapes a character.
        name: glob for the last segment.
        hidden: accept names with a segment that begins with ``_`` or ``.``. Spark and most other tools
            skip these. A segment such as ``_x=1`` names a partition and is not hidden.

    >>> names = PathFilter(glob="2026-*/**/*.{json,csv}")
    >>> [names.wants(path) for path in ("2026-11/a/b.json", "2026-11/b.csv", "2026-11/_tmp/b.csv")]
    [True, True, False]
    >>> names.literal
    '2026-'
    """

    glob: str | None = None
    name: str | None = None
    hidden: bool = field(default=False, validator=check_flag)
    _glob: re.Pattern[str] | None = field(init=False, eq=False, repr=False)
    _name: re.Pattern[str] | None = field(init=False, eq=False, repr=False)

    @_glob.default
    def _compile_glob(self) -> re.Pattern[str] | None:
        return None if self.glob is None else _pattern(self.glob, "glob")

    @_name.default
    def _compile_name(self) -> re.Pattern[str] | None:
        return None if self.name is None else _pattern(self.name, "name")

    @property
    def literal(self) -> str:
        """The prefix that all matching paths share."""
        if self.glob is None:
            return ""
        special = _SPECIAL.search(self.glob)
        return self.glob if special is None else self.glob[: special.start()]

    def wants(self, path: str) -> bool:
        """Return whether the filter accepts `path`, which is relative to the prefix."""
        segments = path.split("/")
        if not segments[-1]:  # an object that a console writes as a directory marker
            return False
        if not self.hidden and any(
            segment.startswith(".") or (segment.startswith("_") and "=" not in segment)
            for segment in segments
        ):
            return False
        if self._glob is not None and not self._glob.fullmatch(path):
            return False
        return self._name is None or self._name.fullmatch(segments[-1]) is not None
