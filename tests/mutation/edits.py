"""Changes of the library's source, each anchored on a function and a snippet in it.

A snippet is compared by its tokens: spaces, line breaks, indentation, comments, trailing commas and
the parentheses around a wrapped expression do not matter. So a mutant still fits after a formatter has
wrapped a line, or a block was indented.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from mutation.library import COMMITLOG, Definition, Library, OutOfDate

__all__ = ["Change", "Edit"]

_TOKEN = re.compile(
    r"""(?P<skip> [\s\\]+ | \#[^\n]* )
    | [A-Za-z]{0,2} (?: '{3}.*?'{3} | "{3}.*?"{3} | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" )
    | \w+ | -> | \.\.\. | (?: \*\* | // | << | >> | [-+*/%&|^@=!<>:] )=? | .""",
    re.DOTALL | re.VERBOSE,
)

#: A formatter puts an expression that follows one of these into parentheses, to wrap it.
_WRAPPED = frozenset({"=", "return", "if", "elif", "while", "in", "assert"})

#: The text after an expression that ends its statement, or the head of its block.
_ENDS = re.compile(r"[^\S\n]*(?:[:#\n]|\Z)")


@frozen
class Change:
    """A few lines of a definition, and the lines that replace them.

    Attributes:
        anchor: the definition that has the lines; see `Library.find`.
        before: a snippet that occurs once in it.
        after: the lines that replace it, with the same left margin as the snippet. None: no change.
    """

    anchor: str
    before: str
    after: str | None


@frozen(init=False)
class Edit:
    """Changes of the library.

    Attributes:
        changes: the changes that break a rule.
        limits: changes of constants that make limits small enough for a small world. The unchanged
            library gets them, too, and the report does not show them.
    """

    changes: tuple[Change, ...]
    limits: tuple[Change, ...]

    def __init__(
        self, *changes: tuple[str, str, str | None], limits: Iterable[tuple[str, str, str]] = ()
    ) -> None:
        """Take each change as an anchor, the snippet, and the lines that replace it."""
        self.__attrs_init__(
            tuple(Change(*change) for change in changes), tuple(Change(*change) for change in limits)
        )

    def none(self) -> Edit:
        """Return an edit of the same modules that changes only the limits."""
        edit = Edit()
        edit.__attrs_init__(tuple(evolve(each, after=None) for each in self.changes), self.limits)
        return edit

    def sources(self, library: Library = COMMITLOG, *, limits: bool = True) -> Mapping[str, str]:
        """Return the new source of each module that has a change, by the module's name.

        Raises:
            OutOfDate: a change no longer fits the library.
        """
        places: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for change in (*self.changes, *(self.limits if limits else ())):
            module, place = _place(library, change)
            places[module].append(place)
        return {module: _replaced(library, module, found) for module, found in places.items()}


def _place(library: Library, change: Change) -> tuple[str, tuple[int, int, str]]:
    """Return the module of a change, and the start, the end and the replacement of the changed text."""
    definitions = library.find(change.anchor)
    module = definitions[0].module
    source = library.source(module)
    found = [place for each in definitions for place in _occurrences(source, each, change.before)]
    if len(found) != 1:
        raise OutOfDate(
            f"this occurs {len(found)} times in {change.anchor} ({module}), and must occur once;"
            f" update the mutant:\n{change.before}"
        )
    start, end = found[0]
    if change.after is None:
        return module, (start, start, "")
    line = source.rfind("\n", 0, start) + 1
    margin = source[line:start]
    if margin.strip():  # the snippet begins within a line
        return module, (start, end, _shifted(change, _indent(margin)).lstrip())
    if not change.after and (rest := re.compile(r"[^\S\n]*\n").match(source, end)):
        end = rest.end()  # leave no empty line
    return module, (line, end, _shifted(change, margin))


def _shifted(change: Change, margin: str) -> str:
    """Return the new lines, moved by as many columns as the snippet needs to begin at a margin."""
    less = len(_indent(change.before.lstrip("\n")))
    lines = change.after.strip("\n").splitlines() if change.after else []
    shifted = (" " * (len(_indent(line)) - less + len(margin)) + line.lstrip() for line in lines)
    return "\n".join(shifted)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _replaced(library: Library, module: str, places: Iterable[tuple[int, int, str]]) -> str:
    source = library.source(module)
    for start, end, after in sorted(places, reverse=True):
        source = source[:start] + after + source[end:]
    try:
        compile(source, module, "exec")
    except SyntaxError as error:
        raise OutOfDate(
            f"a mutant makes {module} invalid Python ({error}); update the mutant"
        ) from error
    return source


def _occurrences(source: str, definition: Definition, snippet: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each occurrence of a snippet in a definition."""
    wanted = [token[0] for token in _tokens(snippet, 0, len(snippet)) if token[0]]
    there = _tokens(source, definition.start, definition.end)
    kept = [index for index, token in enumerate(there) if token[0]]
    texts = [there[index][0] for index in kept]
    for first in range(len(texts) - len(wanted) + 1 if wanted else 0):
        if texts[first : first + len(wanted)] == wanted:
            last = kept[first + len(wanted) - 1]
            opened = [token for token in there[kept[first] : last] if token[1] is not None]
            # A parenthesis that opens within the snippet and closes right behind it belongs to it.
            while last + 1 < len(there) and any(token[1] == last + 1 for token in opened):
                last += 1
            yield there[kept[first]][2], there[last][3]


def _tokens(source: str, start: int, end: int) -> Sequence[tuple[str, int | None, int, int]]:
    """Return the tokens in a part of a source.

    Returns:
        The text, the index of the closing parenthesis, the start and the end of each token. The index
        is set for an opening parenthesis that a formatter adds. The text is empty if the token depends
        on how lines are wrapped: a trailing comma, or such a parenthesis.
    """
    matches = [each for each in _TOKEN.finditer(source, start, end) if each["skip"] is None]
    texts = [each[0] for each in matches]
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, text in enumerate(texts):
        if text == "(":
            opened.append(index)
        elif text == ")" and opened:
            before = opened.pop()
            wraps = before > 0 and texts[before - 1] in _WRAPPED
            if wraps and _ENDS.match(source[matches[index].end() : end]):
                pairs[before] = index
    commas = {
        index
        for index, pair in enumerate(pairwise(texts))
        if pair[0] == "," and pair[1] in (")", "]", "}")
    }
    ignored = commas | pairs.keys() | set(pairs.values())
    return [
        ("" if index in ignored else each[0], pairs.get(index), *each.span())
        for index, each in enumerate(matches)
    ]
