"""Dialect of CSV: the rules by which a line is split into fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from commitlog.errors import ConfigurationError

__all__ = ["DIALECT_OPTIONS", "CsvDialect", "column_names"]

#: The options of `CsvDialect.of`.
DIALECT_OPTIONS = (
    "sep",
    "delimiter",
    "quote",
    "escape",
    "nullValue",
    "comment",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
)


@frozen(kw_only=True)
class CsvDialect:
    r"""The special characters of a line. The defaults are Spark's.

    A field that begins with a quote ends with a quote; spaces and tabs may follow, except a separator.
    Between the quotes, a doubled quote is one quote (RFC 4180), and so is a quote after an escape
    character. A doubled escape character is one escape character; before any other character, an escape
    character is literal. In fields without quotes, quotes and escape characters are literal.

    Attributes:
        separator: the separator between fields, of one or more characters.
        quote: the character around fields that contain special characters; empty for none.
        escape: the escape character; empty for none. If it is the quote, only doubled quotes count.
        null: the text of null, with quotes or without. An empty field without quotes is null as well.
        comment: the first character of lines that are ignored; empty for none.
        trim_left: whether spaces and tabs before fields are left out, within quotes excepted.
        trim_right: whether spaces and tabs after fields without quotes are left out.

    >>> CsvDialect().fields('a b,,"c, ""d"" \\"e\\"",""')
    ['a b', None, 'c, "d" "e"', None]
    """

    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    comment: str = ""
    trim_left: bool = False
    trim_right: bool = False
    _field: re.Pattern[str] = field(init=False, repr=False, eq=False)
    _open: re.Pattern[str] = field(init=False, repr=False, eq=False)
    _resumed: re.Pattern[str] = field(init=False, repr=False, eq=False)
    _escaped: re.Pattern[str] = field(init=False, repr=False, eq=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CsvDialect:
        """Return the dialect that options give. Raises `ConfigurationError` for an invalid value."""
        separator = options.get("sep", options.get("delimiter", ","))
        characters = {name: options[name] for name in ("quote", "escape", "comment") if name in options}
        for name, value in [("sep", separator), *characters.items()]:
            if "\n" in value or "\r" in value or (name != "sep" and len(value) > 1):
                raise ConfigurationError(f"option {name} is {value!r}: give one character")
        if not separator:
            raise ConfigurationError("option sep is empty: give the separator of fields")
        left, right = (
            options.get(f"ignore{side}WhiteSpace", "false") for side in ("Leading", "Trailing")
        )
        return cls(
            separator={"\\t": "\t"}.get(separator, separator),
            null=options.get("nullValue", ""),
            trim_left=left.lower() == "true",
            trim_right=right.lower() == "true",
            **characters,
        )

    @_field.default
    def _make_field(self) -> re.Pattern[str]:
        begin, inside, quote, bare, separator = self._patterns()
        quoted = f"{begin}({inside}){quote}{self._blanks()}"
        return re.compile(f"(?:{quoted}|(?!{begin})({bare}))({separator}|\\Z)", re.DOTALL)

    @_open.default
    def _make_open(self) -> re.Pattern[str]:
        begin, inside, quote, bare, separator = self._patterns()
        closed = f"(?:(?:{begin}{inside}{quote}{bare}|(?!{begin}){bare}){separator})*+"
        return re.compile(f"{closed}{begin}{inside}\\Z", re.DOTALL)

    @_resumed.default
    def _make_resumed(self) -> re.Pattern[str]:
        _, inside, quote, bare, separator = self._patterns()
        again = f"{quote}{bare}{separator}{self._open.pattern}"
        return re.compile(f"{inside}(?:\\Z|{again})", re.DOTALL)

    @_escaped.default
    def _make_escaped(self) -> re.Pattern[str]:
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        if not self.quote:
            return re.compile("(?!)")
        return re.compile(
            f"{quote}({quote})" + (f"|{escape}([{quote}{escape}])" if self.escapes else "")
        )

    def _patterns(self) -> tuple[str, str, str, str, str]:
        """Return patterns: begin, inside and end of a quoted field; a bare field; and the separator."""
        separator, quote, escape = map(re.escape, (self.separator, self.quote, self.escape))
        bare = f"(?:(?!{separator}).)*+" if len(self.separator) > 1 else f"[^{separator}]*+"
        if not self.quote:
            return "(?!)", "", "", bare, separator
        inside = f"(?:[^{quote}]|{quote}{quote})*+"
        if self.escapes:
            inside = f"(?:[^{quote}{escape}]|{quote}{quote}|{escape}.)*+"
        return (self._blanks() if self.trim_left else "") + quote, inside, quote, bare, separator

    def _blanks(self) -> str:
        """Return the pattern of spaces and tabs before a quoted field or after it."""
        return f"(?:(?!{re.escape(self.separator)})[ \\t])*"

    @property
    def escapes(self) -> bool:
        """Whether there is an escape character, and something to escape."""
        return bool(self.quote and self.escape) and self.quote != self.escape

    @property
    def white(self) -> bytes:
        """White space that is not in the separator. A line of nothing else is not a record."""
        return bytes(byte for byte in b" \t\r\n\x0b\x0c" if chr(byte) not in self.separator)

    def fields(self, line: str) -> list[str | None]:
        """Return the fields of a line. Raises `ValueError` if the quotes of a field do not match."""
        found: list[str | None] = []
        at = 0
        while True:
            match = self._field.match(line, at)
            if match is None:
                raise ValueError(f"the quotes of field {len(found) + 1} do not match")
            quoted, bare, separator = match.groups()
            if quoted is None:
                bare = bare.lstrip(" \t") if self.trim_left else bare
                bare = bare.rstrip(" \t") if self.trim_right else bare
                value = bare or None
            else:
                value = self._escaped.sub(_last_group, quoted)
            found.append(None if value == self.null else value)
            if not separator:
                return found
            at = match.end()

    def is_open(self, line: str, inside: bool) -> bool:
        """Return whether a line ends within quotes, so that the next line continues its record.

        Args:
            line: the line, with its end.
            inside: whether it begins within quotes.
        """
        if not self.quote or (not inside and self.quote not in line):
            return False
        return (self._resumed if inside else self._open).match(line) is not None


def _last_group(match: re.Match[str]) -> str:
    return match[match.lastindex or 0]


def column_names(fields: Sequence[str | None]) -> list[str]:
    """Return the column names of a header, without white space around them.

    An empty name is replaced by one with the number of the column, as in Spark. Raises `ValueError` if
    two names are the same, letter case aside, because a value must not get into the wrong column.

    >>> column_names(["a", " b", None])
    ['a', 'b', '_c2']
    """
    names = [(name or "").strip() or f"_c{place}" for place, name in enumerate(fields)]
    times = Counter(map(str.lower, names))
    for name in names:
        if times[name.lower()] > 1:
            raise ValueError(f"column {name!r} is there twice (letter case does not count)")
    return names
