"""What a source reads, how much at a time, and what it does about objects that it cannot read.

Imports the ground floor.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias, get_args

from attrs import Attribute, field, frozen, validators

from commitlog.errors import ConfigurationError
from commitlog.ingest.names import Names
from commitlog.paths import check_prefix

__all__ = ["Changed", "IngestSettings", "Missing", "Remember", "Starting", "Unreadable"]

#: What to do about an object that was read before, or listed, and has another content now.
Changed: TypeAlias = Literal["again", "ignore", "fail"]
#: What to do about an object that was deleted between listing and reading.
Missing: TypeAlias = Literal["fail", "skip"]
#: What to do about content that cannot be read.
Unreadable: TypeAlias = Literal["quarantine", "fail"]
#: Which objects that were handed out are remembered: those inside the grace window, or all for ever.
Remember: TypeAlias = Literal["window", "everything"]
#: Which objects are wanted: all, those from the first start on, or those from an epoch second on.
Starting: TypeAlias = Literal["all", "latest"] | float

MAX_SOURCE_BYTES = 512

#: What `IngestSettings.list_limit` is for keys that grow: a page of S3's.
ORDERED_LIST_LIMIT = 1000

#: Most files in one epoch. Its list, with the state, must be one transaction; see `rows`.
MAX_FILES = 100_000


def _check_source(_self: object, _attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not value.strip() or value.startswith("../"):
        raise ConfigurationError(f"a source id is a text that is not blank, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"source id {value!r} is not valid Unicode") from None
    if size > MAX_SOURCE_BYTES:
        raise ConfigurationError(f"a source id has at most {MAX_SOURCE_BYTES} bytes, not {size}")


def _one_of(words: Any) -> Any:
    def check(_self: object, attribute: Attribute[str], value: object) -> None:
        if value not in get_args(words):
            raise ConfigurationError(
                f"{attribute.name} {value!r} is none of {', '.join(get_args(words))}"
            )

    return check


def _at_least(least: float) -> Any:
    def check(_self: object, attribute: Attribute[float], value: object) -> None:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not least <= value < math.inf
        ):
            raise ConfigurationError(f"{attribute.name} is a number from {least} on, not {value!r}")

    return check


def _check_starting(_self: object, _attribute: Attribute[Starting], value: object) -> None:
    if value in ("all", "latest"):
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return
    raise ConfigurationError(f"starting_from is 'all', 'latest' or an epoch second, not {value!r}")


def _check_files(_self: object, _attribute: Attribute[int], value: int) -> None:
    if not 1 <= value <= MAX_FILES:
        raise ConfigurationError(f"max_files is 1 to {MAX_FILES:,}, not {value!r}")


@frozen(kw_only=True)
class IngestSettings:
    """Settings of one source. All but `source` can be changed between two starts of a query.

    What a changed `prefix`, `names` or `starting_from` newly lets in is read only as far as it was
    modified inside the grace window; the rest counts as known.

    Attributes:
        source: names the source in the state table; outlives restarts, and is nobody else's.
        prefix: what paths in the store start with.
        names: which of these are wanted; see `commitlog.ingest.names.Names`.
        max_files: most files that an epoch begins with.
        max_bytes: most bytes of an epoch, or None. One slice is always read, however large.
        starting_from: decided at the first start, and kept.
        max_file_age: objects that are older than this when they are listed are passed over and counted,
            in seconds; None for no limit.
        grace: how long after its own timestamp an object may turn up in a listing, in seconds. A
            multipart upload bears the time at which it *began*; clocks of the store's machines differ.
        remember: ``everything`` needs no grace window, and grows with the history: about 200 bytes of
            the driver's memory, and 50 of the table, for each object.
        ordered: keys grow, more or less: each call lists the tail of the listing, where keys younger
            than the grace window are, and goes on with a sweep of all that is before it.
        list_limit: most objects that one call lists, or None for all. The next call goes on there. With
            `ordered`, the tail does not count, and None is 1,000.
        slice_bytes: files of a format that can be split are cut into slices of this size.
        keep_epochs: how many of the last epochs can be handed out again, at least.
        changed: see `Changed`; what is not ``again`` needs ``everything`` remembered.
        missing: see `Missing`.
        unreadable: see `Unreadable`.
    """

    source: str = field(validator=_check_source)
    prefix: str = field(default="", converter=check_prefix)
    names: Names = field(factory=Names)
    max_files: int = field(default=1000, validator=_check_files)
    max_bytes: int | None = field(default=None, validator=validators.optional(_at_least(1)))
    starting_from: Starting = field(default="all", validator=_check_starting)
    max_file_age: float | None = field(default=None, validator=validators.optional(_at_least(0)))
    grace: float = field(default=3600.0, validator=_at_least(0))
    remember: Remember = field(default="window", validator=_one_of(Remember))
    ordered: bool = False
    list_limit: int | None = field(default=None, validator=validators.optional(_at_least(1)))
    slice_bytes: int = field(default=64 * 1024 * 1024, validator=_at_least(1))
    keep_epochs: int = field(default=2, validator=_at_least(2))
    changed: Changed = field(default="again", validator=_one_of(Changed))
    missing: Missing = field(default="fail", validator=_one_of(Missing))
    unreadable: Unreadable = field(default="fail", validator=_one_of(Unreadable))

    def __attrs_post_init__(self) -> None:
        if self.changed != "again" and self.remember != "everything":
            raise ConfigurationError(
                f"changed={self.changed!r} has to know every object that was ever read: set"
                " remember='everything', or changed='again'"
            )

    @property
    def tail_limit(self) -> int | None:
        """Most objects that one call lists of the tail."""
        return None if self.ordered else self.list_limit

    @property
    def body_limit(self) -> int | None:
        """Most objects that one call lists of what is before the tail."""
        return ORDERED_LIST_LIMIT if self.ordered and self.list_limit is None else self.list_limit

    @property
    def listed_prefix(self) -> str:
        """What the names of all wanted objects start with."""
        return self.prefix + self.names.literal
