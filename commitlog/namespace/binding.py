"""A directory that others write to, too: to which prefix of the store it is bound, and when it was last
as the store was.

Imports errors, paths and the fields of records.
"""

from __future__ import annotations

from attrs import field, frozen

from commitlog.errors import InvalidPath
from commitlog.oplog.fields import maybe_count, moment, text
from commitlog.paths import check_prefix

__all__ = ["RESERVED", "Binding"]

#: What the library itself keeps in a store of a namespace: its log, its mark. Nobody's files.
RESERVED = "_commitlog/"


def _prefix(value: object) -> str:
    prefix = check_prefix(text(value))
    if not prefix:
        raise ValueError("the whole store has the namespace's own content: name a prefix in it")
    if not prefix.endswith("/"):
        raise ValueError(f"prefix {prefix!r} names no directory: end it in a slash")
    if prefix.startswith(RESERVED):
        raise ValueError(f"prefix {prefix!r} is where the library keeps what is its own")
    return prefix


def _age(value: object) -> float | None:
    if value is None:
        return None
    age = moment(value)
    if age < 0:
        raise ValueError(f"{value!r} is no age in seconds: it is 0 or more, or None")
    return age


@frozen(kw_only=True)
class Binding:
    """Which objects are files of a directory: those whose paths are `prefix` and a name.

    Attributes:
        prefix: with its slash. Not that of the whole store, which has the namespace's own content.
        max_age: seconds for which the rows alone say what the directory has, after they were made to
            agree with the store; None: for good, once they were. 0: the store is always asked.
        synced: epoch millisecond since which they have agreed, by the clock of who looked; None: never.
    """

    prefix: str = field(converter=_prefix)
    max_age: float | None = field(default=0.0, converter=_age)
    synced: int | None = field(default=None, converter=maybe_count)

    def path_of(self, name: str) -> str:
        """Return the path of the object that is the file of that name.

        >>> Binding(prefix="raw/").path_of("a")
        'raw/a'
        """
        return self.prefix + name

    def below(self, name: str) -> Binding | None:
        """Return the binding of a directory of that name; None if no object has so long a path.

        >>> Binding(prefix="raw/", max_age=60, synced=5).below("a")
        Binding(prefix='raw/a/', max_age=60.0, synced=None)
        """
        try:
            return Binding(prefix=f"{self.prefix}{name}/", max_age=self.max_age)
        except InvalidPath:
            return None

    def is_fresh(self, now: int) -> bool:
        """Tell whether the rows alone say what the directory has, at an epoch millisecond.

        >>> bound = Binding(prefix="raw/", max_age=60, synced=100_000)
        >>> bound.is_fresh(159_999), bound.is_fresh(160_000)
        (True, False)

        A client whose clock is ahead is not believed for longer than one whose clock is behind.

        >>> bound.is_fresh(30_000)
        False
        """
        if self.synced is None:
            return False
        return self.max_age is None or abs(now - self.synced) < self.max_age * 1000

    def to_json(self) -> list[object]:
        """Return the fields as they are stored."""
        return [self.prefix, self.max_age, self.synced]
