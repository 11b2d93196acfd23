"""The objects below a prefix of a store, divided into ranges of about the same size.

A range is an interval of paths, so ranges cover all objects, each once, wherever they are cut; and also
objects that are written later. Only the sizes are estimates. Directories are found by listings with a
delimiter, level by level. Then one page is listed at the beginning of each, and further pages in the
middle of the largest gaps between pages.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from commitlog._util.concurrency import SERIAL, Executor
from commitlog.errors import InvalidPath
from commitlog.paths import check_prefix
from commitlog.stores.api import ObjectInfo, ObjectStore, Page
from commitlog.stores.order import in_order, up_to

__all__ = ["ListedRange", "objects_in", "ranges_of"]

#: What to do if the objects of a store cannot be divided.
_ADVICE = "do this in one process"

#: Directories to look for, for each range.
_PARTS = 2

#: Most requests for each range, and in addition to that.
_REQUESTS, _MORE_REQUESTS = 8, 32

#: Paths of a page at which a range may end.
_MARKS = 8

#: Number of paths that tell how close paths are.
_CLOSE = 32

#: Estimated number of objects where nothing is known.
_UNKNOWN = 10_000

#: Number of positions of a scale.
_SCALE = 2**64

#: Letters of which a scale expects all if it has seen two; and of the digits, if it has seen one.
_CLASSES = ("abcdef", "ABCDEF")
_DIGITS = "0123456789"

_LAST = chr(0x10FFFF)
#: The characters before and after the surrogates, which no path has.
_BELOW_SURROGATES, _ABOVE_SURROGATES = chr(0xD7FF), chr(0xE000)


@frozen(kw_only=True)
class ListedRange:
    """The objects below a prefix in an interval of paths.

    Attributes:
        prefix: the prefix.
        start_after: only paths that come after this one; "" for no limit.
        until: only paths up to this one, which is included; None for no limit.
    """

    prefix: str
    start_after: str = ""
    until: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"prefix": self.prefix, "start_after": self.start_after, "until": self.until}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> ListedRange:
        """Return the range that `to_json` returned."""
        return cls(**found)


def objects_in(store: ObjectStore, within: ListedRange) -> Iterator[ObjectInfo]:
    """Yield the objects of a range, in the order of their paths.

    Raises the errors of `ObjectStore.list`, and `NotSupported` if the store lists in another order than
    that of the bytes of the paths: its objects cannot be divided.
    """
    after = within.start_after
    listed = store.list(within.prefix, start_after=after)
    if within.until is None:
        return in_order(store, listed, after=after, advice=_ADVICE)
    return up_to(store, within.prefix, listed, after=after, last=within.until, advice=_ADVICE)


def ranges_of(
    store: ObjectStore, prefix: str, *, count: int, executor: Executor = SERIAL
) -> list[ListedRange]:
    """Divide the objects below a prefix into about as many ranges as wanted.

    Takes at most ``8 * count + 32`` listings. The sizes are estimates; objects that are written later
    belong to one of the ranges, too.

    Args:
        store: has the objects.
        prefix: prefix of their paths; "" for all objects.
        count: number of ranges; fewer are returned if there are few objects.
        executor: makes listings in parallel, if given.

    Returns the ranges in the order of paths. The first has no beginning, and the last no end.
    """
    sampler = _Sampler(
        store=store,
        prefix=prefix,
        count=count,
        executor=executor,
        left=_REQUESTS * count + _MORE_REQUESTS,
    )
    cuts = sampler.cuts() if count > 1 else []
    ends: list[str | None] = [*cuts, None]
    return [
        ListedRange(prefix=prefix, start_after=after or "", until=until)
        for after, until in pairwise(["", *ends])
    ]


@define
class _Scale:
    """Maps paths to numbers, such that the paths of a directory are spread evenly, if they can be.

    Each character of a path is a digit, among the characters that paths have at this position.

    Attributes:
        seen: the characters that paths have, by position.
        letters: the characters to expect, by position.
        size: the number of all positions of the scale.
    """

    seen: list[set[str]] = field(factory=list)
    letters: list[list[str]] = field(factory=list)
    size: int = 1

    def learn(self, paths: Iterable[str]) -> None:
        """Learn which characters paths have."""
        for path in paths:
            self.seen.extend(set[str]() for _ in range(len(path) - len(self.seen)))
            for characters, character in zip(self.seen, path, strict=False):
                characters.add(character)
        self.letters.clear()
        self.size = 1
        for characters in self.seen:
            if self.size > _SCALE:
                break
            self.letters.append(_expected(characters))
            self.size *= len(self.letters[-1])

    def number(self, path: str | None) -> int:
        """Return the number of a path, from 0 to `size`; of its end, if the path is None."""
        if path is None:
            return self.size
        number, width = 0, self.size
        for position, letters in enumerate(self.letters):
            character = path[position : position + 1]
            at = bisect_left(letters, character)
            width //= len(letters)
            number += at * width
            if at == len(letters) or letters[at] != character:
                return number
        return number

    def path(self, number: int) -> str:
        """Return a path with about this number."""
        found = []
        width = self.size
        for letters in self.letters:
            width //= len(letters)
            at, number = divmod(number, width)
            found.append(letters[min(at, len(letters) - 1)])
        return "".join(found)

    def end(self) -> str | None:
        """Return a path after all that the scale expects; None if there is none."""
        common = ""
        for letters in self.letters:
            common += letters[-1]
            if len(letters) > 1:
                break
        return _after(common)


def _expected(characters: set[str]) -> list[str]:
    expected = set(characters)
    if not characters.isdisjoint(_DIGITS):
        expected.update(_DIGITS)
    for letters in _CLASSES:
        if len(characters & set(letters)) > 1:
            expected.update(letters)
    return sorted(expected)


def _after(text: str) -> str | None:
    """Return the first text after all that begin with this one; None if it is empty or the last."""
    text = text.rstrip(_LAST)
    if not text:
        return None
    last = text[-1]
    return text[:-1] + (_ABOVE_SURROGATES if last == _BELOW_SURROGATES else chr(ord(last) + 1))


#: Paths in a part of a page: the part, and how many objects it has.
_Sampled: TypeAlias = tuple[str, str, int]


@frozen(kw_only=True)
class _Part:
    """An interval of paths.

    Attributes:
        after, until: as in `ListedRange`; here, "" and None are the beginning and end.
        prefix: the directory that this is, if it may be listed with a delimiter.
        objects: number of objects, if known.
        marks: some of their paths, at even distances; the last one is the last.
        scale: that of the paths, once a page was listed.
        is_closed: whether paths follow that the scale knows.
        before, behind: parts of the pages before and after the part, which lie next to it.
        is_stuck: whether the part cannot be divided.
    """

    after: str
    until: str | None
    prefix: str | None = None
    objects: int | None = None
    marks: Sequence[str] = ()
    scale: _Scale | None = None
    is_closed: bool = False
    before: tuple[_Sampled, ...] = ()
    behind: tuple[_Sampled, ...] = ()
    is_stuck: bool = False

    def has(self, path: str) -> bool:
        """Return whether a path is in this part."""
        return path > self.after and (self.until is None or path <= self.until)

    def numbers(self) -> tuple[int, int]:
        """Return the numbers of its ends."""
        assert self.scale is not None
        low = self.scale.number(self.after)
        return low, max(low, self.scale.number(self.until))

    def end(self) -> str | None:
        """Return where paths would begin that its scale does not expect; None if there are none."""
        if self.scale is None or self.objects is not None or self.is_closed:
            return None
        end = self.scale.end()
        return end if end is not None and self.has(end) and end != self.until else None

    def estimate(self) -> float:
        """Return the number of objects, or an estimate."""
        if self.objects is not None:
            return self.objects
        if self.scale is None:
            return _UNKNOWN
        low, high = self.numbers()
        sides = [self._density(side) for side in (self.before, self.behind) if side]
        return max(1.0, (high - low) * sum(sides) / max(1, len(sides)))

    def _density(self, side: tuple[_Sampled, ...]) -> float:
        """Return the number of objects for each number of the scale, where a page is most crowded."""
        assert self.scale is not None
        number = self.scale.number
        return max(objects / max(1, number(last) - number(first)) for first, last, objects in side)


@define(kw_only=True)
class _Sampler:
    """Looks for the places at which a listing can be cut.

    Attributes:
        store, prefix, count, executor: see `ranges_of`.
        left: number of requests that are left.
    """

    store: ObjectStore
    prefix: str
    count: int
    executor: Executor
    left: int

    def cuts(self) -> list[str]:
        """Return the places, in order."""
        parts = [_Part(after="", until=None, prefix=self.prefix)]
        before = 0
        while before < len(parts) < _PARTS * self.count and self.left > 0:
            before = len(parts)
            parts = self._divide(parts)
        parts = _merged(parts, _PARTS * self.count)
        while wanted := self._wanted(parts):
            parts = self._sample(parts, wanted)
        return _cut(parts, self.count)

    # directories

    def _divide(self, parts: Sequence[_Part]) -> list[_Part]:
        """Divide parts into the directories in them, one level deeper."""
        divided: list[_Part] = []
        for number, part in enumerate(parts):
            room = _PARTS * self.count - len(divided) - (len(parts) - number)
            if part.prefix is None or room < 0 or self.left <= _PARTS * self.count:
                divided.append(part)
            else:
                divided += self._directories(part, part.prefix, room)
        return divided

    def _directories(self, part: _Part, prefix: str, room: int) -> list[_Part]:
        """Divide a part into its directories; objects between them belong to the next one."""
        found: list[_Part] = []
        after = part.after
        token: str | None = None
        while True:
            self.left -= 1
            page = self.store.list_page(prefix, delimiter="/", token=token)
            for below in sorted(page.prefixes):
                until = below[:-1] + chr(ord("/") + 1)
                if part.has(until) and until > after:
                    found.append(_Part(after=after, until=until, prefix=_listable(below)))
                    after = until
            token = page.next_token
            if token is None:
                if not found:
                    return [evolve(part, prefix=None)]
                return [*found[:-1], evolve(found[-1], until=part.until)]
            if len(page.prefixes) <= len(page.objects) or len(found) > room or self.left <= 0:
                return [*found, evolve(part, after=after, prefix=None)]

    # pages

    def _wanted(self, parts: Sequence[_Part]) -> list[int]:
        """Return the numbers of the parts of which a page is to be listed next."""
        if self.left <= 0:
            return []
        share = sum(each.estimate() for each in parts) / self.count / 2
        wanted: list[tuple[float, int]] = []
        for at, part in enumerate(parts):
            if part.objects is not None or part.is_stuck:
                continue
            estimate = part.estimate()
            if part.scale is None or part.end() is not None:
                wanted.append((math.inf, at))
            elif estimate > share:
                wanted.append((estimate, at))
        return sorted(at for _, at in sorted(wanted, reverse=True)[: self.left])

    def _sample(self, parts: Sequence[_Part], wanted: Sequence[int]) -> list[_Part]:
        """List a page of some parts, and divide them accordingly."""
        starts = {at: self._start(parts[at]) for at in wanted}
        asked = [at for at, start in starts.items() if start is not None]
        self.left -= len(asked)
        pages = dict(zip(asked, self.executor.map(self._page, map(starts.get, asked)), strict=True))
        sampled: list[_Part] = []
        for at, part in enumerate(parts):
            start = starts.get(at)
            if start is not None:
                sampled += _with_page(part, start, pages[at])
            else:
                sampled.append(evolve(part, is_stuck=True) if at in starts else part)
        return sampled

    def _page(self, start: str | None) -> Page:
        return self.store.list_page(self.prefix, start_after=start or "")

    def _start(self, part: _Part) -> str | None:
        """Return where to list a page of a part; None if it cannot be divided further."""
        if part.scale is None:
            return part.after
        if (end := part.end()) is not None:
            return end
        low, high = part.numbers()
        middle = part.scale.path((low + high) // 2)
        return middle if part.has(middle) and middle != part.until else None


def _merged(parts: Sequence[_Part], count: int) -> list[_Part]:
    """Join neighbours, so that at most `count` parts are left."""
    size = -(-len(parts) // count)
    groups = [parts[start : start + size] for start in range(0, len(parts), size)]
    return [_Part(after=group[0].after, until=group[-1].until) for group in groups]


def _with_page(part: _Part, start: str, page: Page) -> list[_Part]:
    """Divide a part at a page of it that was listed after `start`."""
    paths = [info.path for info in page.objects if part.has(info.path) and info.path > start]
    is_last = page.next_token is None or len(paths) < len(page.objects)
    if not paths and not is_last:
        return [evolve(part, is_stuck=True)]
    scale = part.scale or _Scale()
    scale.learn(paths)
    found: list[_Part] = []
    if start > part.after:
        is_closed = part.is_closed or bool(paths)
        behind = [(paths[0], paths[size - 1], size) for size in _halves(len(paths))]
        found.append(evolve(part, until=start, is_closed=is_closed, scale=scale, behind=tuple(behind)))
    until = part.until if is_last else paths[-1]
    marks = [paths[max(0, len(paths) * each // _MARKS - 1)] for each in range(1, _MARKS + 1) if paths]
    found.append(_Part(after=start, until=until, objects=len(paths), marks=marks))
    if not is_last:
        before = [(paths[-size], paths[-1], size) for size in _halves(len(paths))]
        found.append(evolve(part, after=paths[-1], scale=scale, before=tuple(before)))
    return found


def _halves(number: int) -> Iterator[int]:
    """Yield the number of paths of a page, and half as many while these tell how close paths are."""
    while number >= _CLOSE:
        yield number
        number //= 2


def _listable(prefix: str) -> str | None:
    """Return a prefix if it can be listed; other programs may use any name."""
    try:
        return check_prefix(prefix)
    except InvalidPath:
        return None


# -- cuts ----------------------------------------------------------------------------------------------


def _cut(parts: Sequence[_Part], count: int) -> list[str]:
    """Return the places at which parts are cut into ranges of about the same size, in order."""
    share = sum(map(_Part.estimate, parts)) / count
    places: set[str] = set()
    total, number = 0.0, 1
    for part in sorted(parts, key=attrgetter("after")):
        size = part.estimate()
        while number < count and total + size >= number * share > total:
            place = _place(part, (number * share - total) / size)
            if place:
                places.add(place)
            number += 1
        total += size
    return sorted(places)


def _place(part: _Part, portion: float) -> str | None:
    """Return the path up to which a part has a portion of its objects; None for the very end."""
    if part.objects is None and part.scale is not None:
        low, high = part.numbers()
        place = part.scale.path(low + int((high - low) * portion))
        if part.has(place):
            return place
    elif part.marks:
        return part.marks[max(1, round(len(part.marks) * portion)) - 1]
    return part.until
