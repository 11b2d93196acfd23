"""The record of one lease, and its layout as a table item.

The layout is that of ``DynamoCommit`` in the Rust crate ``object_store`` up to 0.12, so that both kinds
of client can share a table: ``path`` (the object's whole key, without the bucket), ``etag`` (``*`` to
create, else the etag as the store's HEAD spells it, quotes included), ``generation``, ``timeout`` in
milliseconds, ``ttl`` in epoch seconds. Ours adds ``owner``, and to the records of locks ``token`` and
``holder``. That client refuses items with attributes that are neither strings nor numbers, so none is
ever added.
"""

from __future__ import annotations

from types import MappingProxyType

from attrs import field, frozen, validators

from commitlog.errors import CorruptRecord
from commitlog.tables.api import Absent, Equals, Item, Key, TableCondition, TableSchema

__all__ = ["CREATE", "LEASE_SCHEMA", "LOCK", "LOCKS", "NEVER", "LeaseRecord"]

#: The keys of a table of leases.
LEASE_SCHEMA = TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl", use="leases")

#: The value for the etag in a lease to create an object.
CREATE = "*"

#: The value for the etag in a record of a lock, which guards no object. No etag is spelt so.
LOCK = "lock"

#: The beginning of the paths of locks in a table, where no object of a bucket has its key.
LOCKS = "commitlog-lock:"

#: The `LeaseRecord.ttl` of records that a table must never drop: the last second of the year 9999.
NEVER = 253_402_300_799

#: The attributes that a record may lack, and their types.
_OPTIONAL = MappingProxyType({"owner": str, "token": int, "holder": str})

#: All numbers of a record are below this, and so is the next generation.
_MAX_NUMBER = 2**63


@frozen(kw_only=True)
class LeaseRecord:
    """The record of a lease on one version of one object.

    Attributes:
        path: the object's key in its bucket.
        etag: etag of the version that is going to be replaced or deleted; `CREATE` if there is none;
            `LOCK` for a lock.
        generation: number of times that the record was rewritten. It never restarts while a process may
            remember the record.
        timeout: length of the lease in milliseconds; 0 once it was released.
        ttl: epoch second after which the table may drop the record; `NEVER` for a lock.
        owner: id of the call that wrote it; None for ``object_store``.
        token: the fencing token of a lock: the generation at which its holder acquired it, which
            renewals and the release keep. None if the record is not that of a lock.
        holder: a description of the holder of a lock, for people; None likewise.
    """

    path: str = field(validator=validators.min_len(1))
    etag: str = field(validator=validators.min_len(1))
    generation: int = field(validator=validators.ge(0))
    timeout: int = field(validator=validators.ge(0))
    ttl: int = field(validator=validators.ge(0))
    owner: str | None = None
    token: int | None = None
    holder: str | None = None

    @property
    def key(self) -> Key:
        """The key of the record in the table."""
        return Key(self.path, self.etag)

    @property
    def released(self) -> bool:
        """True if its holder is done: it can be reclaimed without waiting."""
        return self.timeout == 0

    def unchanged(self) -> TableCondition:
        """Return the condition that the table still holds this very record.

        The generation alone would do among records that are never dropped. Owner and TTL tell a record
        from one of the same generation that was made after the table had dropped it.
        """
        owner = Absent("owner") if self.owner is None else Equals("owner", self.owner)
        return Equals("generation", self.generation) & Equals("ttl", self.ttl) & owner

    def to_item(self) -> Item:
        """Return the record as a table item."""
        item: dict[str, str | int] = {
            "path": self.path,
            "etag": self.etag,
            "generation": self.generation,
            "timeout": self.timeout,
            "ttl": self.ttl,
        }
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None:
                item[name] = value
        return item

    @classmethod
    def from_item(cls, item: Item) -> LeaseRecord:
        """Return the record that `item` holds; attributes that it does not know are ignored.

        Raises `CorruptRecord` if an attribute is missing or of another type. Nothing is changed.
        """
        values: dict[str, object] = {}
        for name, kind in (
            ("path", str),
            ("etag", str),
            ("generation", int),
            ("timeout", int),
            ("ttl", int),
        ):
            value = item.get(name)
            if type(value) is not kind or (type(value) is int and value >= _MAX_NUMBER):
                raise CorruptRecord(_describe(item, f"{name} is {value!r}"))
            values[name] = value
        for name, optional in _OPTIONAL.items():
            value = values[name] = item.get(name)
            if value is not None and type(value) is not optional:
                raise CorruptRecord(_describe(item, f"{name} is {value!r}"))
        try:
            record = cls(**values)  # type: ignore[arg-type]
        except ValueError as error:
            raise CorruptRecord(_describe(item, str(error))) from error
        if record.token is not None and not 0 <= record.token <= record.generation:
            raise CorruptRecord(_describe(item, f"token is {record.token}"))
        return record


def _describe(item: Item, what: str) -> str:
    if item.get("etag") == LOCK:
        return (
            f"the record of the lock {item.get('path')!r} is corrupt: {what}. It was left as it is. Stop"
            " all holders of the lock, then restore the record from a backup, or delete it; later tokens"
            " are larger if the clock of the next holder is right"
        )
    return (
        f"lease record of path {item.get('path')!r}, etag {item.get('etag')!r} is corrupt: {what}. "
        "Delete the item once no writer is at work on that path"
    )
