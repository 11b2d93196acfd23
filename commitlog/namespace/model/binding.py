"""The binding of a directory to a prefix of the store, to which other programs write, too."""

from __future__ import annotations

from attrs import field, frozen

from commitlog.errors import InvalidPath
from commitlog.oplog.validate import maybe_count, moment, text
from commitlog.paths import check_prefix

__all__ = ["RESERVED", "Binding"]

#: Prefix of the library's own objects in the store of a namespace: its log and its identity object.
#: Never files.
RESERVED = "_commitlog/"


def _prefix(value: object) -> str:
    prefix = check_prefix(text(value))
    if not prefix:
        raise ValueError("the whole store has the namespace's own content: name a prefix in it")
    if not prefix.endswith("/"):
        raise ValueError(f"prefix {prefix!r} does not name a directory: end it with a slash")
    if prefix.startswith(RESERVED):
        raise ValueError(f"prefix {prefix!r} is reserved for the library's own objects")
    return prefix


def _age(value: object) -> float | None:
    if value is None:
        return None
    age = moment(value)
    if age < 0:
        raise ValueError(f"{value!r} is not an age in seconds: give 0 or more, or None")
    return age


@frozen(kw_only=True)
class Binding:
    """The binding of a directory: an object is a file of it if its path is `prefix` and a name.

    Attributes:
        prefix: ends in a slash. Not empty: the whole store also holds the namespace's own content.
        max_age: seconds after a synchronisation during which the rows are trusted and the store is not
            asked. None: the rows are trusted without limit after the first synchronisation. 0: the
            store is always asked.
        synced: epoch millisecond of the last synchronisation, by the clock of the client that ran it;
            None: never.
    """

    prefix: str = field(converter=_prefix)
    max_age: float | None = field(default=0.0, converter=_age)
    synced: int | None = field(default=None, converter=maybe_count)

    def path_of(self, name: str) -> str:
        """Return the path of the object that is the file with this name.

        >>> Binding(prefix="raw/").path_of("a")
        'raw/a'
        """
        return self.prefix + name

    def below(self, name: str) -> Binding | None:
        """Return the binding of the subdirectory `name`; None if its prefix is too long for a path.

        >>> Binding(prefix="raw/", max_age=60, synced=5).below("a")
        Binding(prefix='raw/a/', max_age=60.0, synced=None)
        """
        try:
            return Binding(prefix=f"{self.prefix}{name}/", max_age=self.max_age)
        except InvalidPath:
            return None

    def is_fresh(self, now: int) -> bool:
        """Return whether the rows alone are trusted at `now`, an epoch millisecond.

        >>> bound = Binding(prefix="raw/", max_age=60, synced=100_000)
        >>> bound.is_fresh(159_999), bound.is_fresh(160_000)
        (True, False)

        A client whose clock is ahead is trusted for no longer than one whose clock is behind.

        >>> bound.is_fresh(30_000)
        False
        """
        if self.synced is None:
            return False
        return self.max_age is None or abs(now - self.synced) < self.max_age * 1000

    def to_json(self) -> list[object]:
        """Return the fields as they are stored."""
        return [self.prefix, self.max_age, self.synced]
