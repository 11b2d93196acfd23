"""Which names a source wants: globs over paths, and over their last segments.

Imports errors alone.
"""

from __future__ import annotations

import re

from attrs import field, frozen

from commitlog.errors import ConfigurationError

__all__ = ["Names"]

_SPECIAL = re.compile(r"[*?\[{\\]")


def _pattern(glob: str) -> re.Pattern[str]:
    """Return what matches the same as `glob`, a glob as Hadoop has it, with ``**`` for any depth."""
    out: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "*":
            if glob[at : at + 1] == "*":
                at += 1
                if glob[at : at + 1] == "/":  # "a/**/b" has "a/b", too
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
            members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negated:])
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
        raise ConfigurationError(f"glob {glob!r} is none: {error}") from None


@frozen(kw_only=True)
class Names:
    """A choice of names. All that is given must hold.

    Attributes:
        glob: of the path below the prefix: ``*`` and ``?`` stay within a segment, ``**`` does not;
            ``[a-c]``, ``[!a]``, ``{json,csv}``, and a backslash takes the meaning from what follows it.
        name: glob of the last segment alone.
        hidden: whether names with a segment that begins with ``_`` or ``.`` are wanted. Spark and most
            others skip these; a segment ``_x=1`` is that of a partition.

    >>> names = Names(glob="2026-*/**/*.{json,csv}")
    >>> [names.wants(path) for path in ("2026-11/a/b.json", "2026-11/b.csv", "2026-11/_tmp/b.csv")]
    [True, True, False]
    >>> names.literal
    '2026-'
    """

    glob: str | None = None
    name: str | None = None
    hidden: bool = False
    _glob: re.Pattern[str] | None = field(init=False, eq=False, repr=False)
    _name: re.Pattern[str] | None = field(init=False, eq=False, repr=False)

    @_glob.default
    def _compile_glob(self) -> re.Pattern[str] | None:
        return None if self.glob is None else _pattern(self.glob)

    @_name.default
    def _compile_name(self) -> re.Pattern[str] | None:
        return None if self.name is None else _pattern(self.name)

    @property
    def literal(self) -> str:
        """What all wanted paths begin with."""
        if self.glob is None:
            return ""
        special = _SPECIAL.search(self.glob)
        return self.glob if special is None else self.glob[: special.start()]

    def wants(self, path: str) -> bool:
        """Tell whether an object of that path, below the prefix, is wanted."""
        segments = path.split("/")
        if not segments[-1]:  # what consoles make to show a directory
            return False
        if not self.hidden and any(
            segment.startswith(".") or (segment.startswith("_") and "=" not in segment)
            for segment in segments
        ):
            return False
        if self._glob is not None and not self._glob.fullmatch(path):
            return False
        return self._name is None or self._name.fullmatch(segments[-1]) is not None
