"""Settings of a source: which objects it reads, the limits of an epoch, the policies for problems."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from attrs import Attribute, field, frozen, validators

from commitlog._util.parsing import check_choice
from commitlog.errors import ConfigurationError
from commitlog.ingest.path_filter import PathFilter, check_flag
from commitlog.oplog.validate import MAX_COUNT
from commitlog.paths import check_prefix

__all__ = ["Changed", "Clean", "IngestSettings", "Missing", "Remember", "Starting", "Unreadable"]

#: Policy for an object whose content has changed since it was read or listed.
Changed: TypeAlias = Literal["again", "ignore", "fail"]
#: Policy for an object that was deleted between listing and reading.
Missing: TypeAlias = Literal["fail", "skip"]
#: Policy for content that cannot be read.
Unreadable: TypeAlias = Literal["quarantine", "fail"]
#: What happens to objects after they were delivered.
Clean: TypeAlias = Literal["off", "delete", "archive"]
#: The objects that are remembered after they were handed out: those in the grace window, or all.
Remember: TypeAlias = Literal["window", "everything"]
#: The objects to read: all, those that the first start does not find, or those modified since a time in
#: epoch seconds.
Starting: TypeAlias = Literal["all", "latest"] | float

MAX_SOURCE_BYTES = 512

#: Default of `IngestSettings.list_limit` for growing keys: one page of S3's listing.
ORDERED_LIST_LIMIT = 1000

#: Most files in one epoch. The list of its files and the state must fit in one transaction; see `rows`.
MAX_FILES = 100_000


def _check_source(_self: object, _attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not value.strip() or value.startswith("../"):
        raise ConfigurationError(f"a source id must be a text that is not blank, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"source id {value!r} is not valid Unicode") from None
    if size > MAX_SOURCE_BYTES:
        raise ConfigurationError(f"a source id must have at most {MAX_SOURCE_BYTES} bytes, not {size}")


def _one_of(choices: Any) -> Any:
    return lambda _self, attribute, value: check_choice(attribute.name, value, get_args(choices))


def _whole(least: int, most: int = MAX_COUNT) -> Any:
    def check(_self: object, attribute: Attribute[int], value: object) -> None:
        if type(value) is not int or not least <= value <= most:
            raise ConfigurationError(
                f"{attribute.name} must be a whole number from {least} to {most:,}, not {value!r}"
            )

    return check


def _check_seconds(_self: object, attribute: Attribute[float], value: object) -> None:
    if not _is_time(value, least=0):
        raise ConfigurationError(
            f"{attribute.name} must be a number of seconds from 0 to {MAX_COUNT:,}, not {value!r}"
        )


def _is_time(value: object, *, least: int) -> bool:
    # A larger number cannot be read from the state table.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return least <= value <= MAX_COUNT


def _check_starting(_self: object, _attribute: Attribute[Starting], value: object) -> None:
    if value in ("all", "latest") or _is_time(value, least=-MAX_COUNT):
        return
    raise ConfigurationError(
        f"starting_from must be 'all', 'latest' or a time in epoch seconds, not {value!r}"
    )


@frozen(kw_only=True)
class IngestSettings:
    """Settings of one source. All but `source` can be changed between two starts of a query.

    If a changed `prefix`, `names` or `starting_from` newly includes objects, only those modified inside
    the grace window are read. Older ones count as read.

    Attributes:
        source: id of the source in the state table. It survives restarts and must be unique.
        prefix: prefix of the paths in the store.
        names: filter of these paths; see `commitlog.ingest.path_filter.PathFilter`.
        max_files: most files in an epoch.
        max_bytes: most bytes in an epoch, or None. One slice is always read, whatever its size.
        starting_from: which objects to read. Decided at the first start, then kept. ``latest`` skips
            the objects that the first start lists, and no others, whatever their times are.
        max_file_age: in seconds; objects that are older when they are listed are skipped and counted.
            None for no limit.
        grace: in seconds; how long after its own timestamp an object may first appear in a listing. A
            multipart upload has the time at which it *began*; the clocks of a store's machines differ.
        remember: ``everything`` needs no grace window, and grows with the history: about 200 bytes of
            the driver's memory, and 50 of the table, for each object.
        ordered: keys grow, more or less. Each call lists the tail of the listing, with the keys younger
            than the grace window, and continues a sweep of everything before it.
        list_limit: most objects that one call lists, or None for all. The next call continues there.
            With `ordered`, the tail does not count, and None means 1,000.
        slice_bytes: size of the slices into which files are cut, if their format can be split.
        keep_epochs: number of last epochs that can be handed out again, at least.
        changed: see `Changed`; values other than ``again`` require ``remember="everything"``.
        missing: see `Missing`.
        unreadable: see `Unreadable`.
        clean: see `Clean` and `commitlog.ingest.cleaner`. Only files that are planned while it is on are
            cleaned.
        clean_delay: in seconds; how long after the commit of an epoch its files are cleaned, at the
            earliest.
        listing_interval: in seconds; with notifications, the time from the end of a pass over the
            listing to the begin of the next one.
        archive: prefix of the paths of archived objects in the whole store, of which `prefix` may be in
            a part that was opened by its own URL.
    """

    source: str = field(validator=_check_source)
    prefix: str = field(default="", converter=check_prefix)
    names: PathFilter = field(factory=PathFilter)
    max_files: int = field(default=1000, validator=_whole(1, MAX_FILES))
    max_bytes: int | None = field(default=None, validator=validators.optional(_whole(1)))
    starting_from: Starting = field(default="all", validator=_check_starting)
    max_file_age: float | None = field(default=None, validator=validators.optional(_check_seconds))
    grace: float = field(default=3600.0, validator=_check_seconds)
    remember: Remember = field(default="window", validator=_one_of(Remember))
    ordered: bool = field(default=False, validator=check_flag)
    list_limit: int | None = field(default=None, validator=validators.optional(_whole(1)))
    slice_bytes: int = field(default=64 * 1024 * 1024, validator=_whole(1))
    keep_epochs: int = field(default=2, validator=_whole(2))
    changed: Changed = field(default="again", validator=_one_of(Changed))
    missing: Missing = field(default="fail", validator=_one_of(Missing))
    unreadable: Unreadable = field(default="fail", validator=_one_of(Unreadable))
    clean: Clean = field(default="off", validator=_one_of(Clean))
    clean_delay: float = field(default=0.0, validator=_check_seconds)
    listing_interval: float = field(default=3600.0, validator=_check_seconds)
    archive: str = field(default="", converter=check_prefix)

    def __attrs_post_init__(self) -> None:
        if self.changed != "again" and self.remember != "everything":
            raise ConfigurationError(
                f"changed={self.changed!r} requires a record of every object that was ever read: set"
                " remember='everything', or changed='again'"
            )
        if (self.clean == "archive") != bool(self.archive):
            raise ConfigurationError(
                "clean='archive' needs the prefix of the archive, and nothing else has: give both, or"
                " neither"
            )

    @property
    def cleans(self) -> bool:
        """Whether delivered files are deleted or archived."""
        return self.clean != "off"

    @property
    def tail_limit(self) -> int | None:
        """Most objects that one call lists of the tail."""
        return None if self.ordered else self.list_limit

    @property
    def body_limit(self) -> int | None:
        """Most objects that one call lists before the tail."""
        return ORDERED_LIST_LIMIT if self.ordered and self.list_limit is None else self.list_limit

    @property
    def listed_prefix(self) -> str:
        """The prefix that all matching objects share."""
        return self.prefix + self.names.literal
