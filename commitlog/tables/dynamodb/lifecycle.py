"""A DynamoDB table as a whole: creation, checks and version marker.

A table has its format twice, as S3Guard's tables do: in a marker item whose key attributes are all
``../VERSION``, which any client may read, and in a tag, which survives the loss of the items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import frozen

from commitlog.clock import Clock
from commitlog.errors import (
    AccessDenied,
    CommitError,
    ConfigurationError,
    CorruptRecord,
    NotSupported,
    OutcomeUnknown,
    TableNotFound,
    Unavailable,
)
from commitlog.tables.api import TABLE_FORMAT, Absent, Item, TableInfo, TableSchema
from commitlog.tables.dynamodb.calls import Calls, Refused
from commitlog.tables.dynamodb.expressions import conditional
from commitlog.tables.marshal import marshal, unmarshal
from commitlog.tables.rules import MARKER_KEY, format_too_new, wrong_schema

__all__ = ["Lifecycle"]

_TAG = "commitlog-table-version"
#: Most seconds that the creation of a table may take, and seconds between two checks of it.
_READY_WITHIN = 180.0
_LOOK_EVERY = 0.5


@frozen
class Lifecycle:
    """`Table.create`, `check` and `describe` for DynamoDB. Thread-safe, stateless.

    Args:
        calls: the API.
        name: name of the table.
        url: the table, for messages.
        schema: the keys that are wanted.
        clock: the clock for waiting and for the creation time.
    """

    calls: Calls
    name: str
    url: str
    schema: TableSchema
    clock: Clock

    def create(self) -> bool:
        """Make the table, billed on demand; return False if it was there and fits."""
        try:
            self.calls.call("CreateTable", {**self._key_members(), "BillingMode": "PAY_PER_REQUEST"})
            created = True
        except Refused as error:
            if error.code != "ResourceInUseException":
                raise
            created = False
        # Also for a table that was there: its creator may have died half way.
        self._check(self._await_active(exists=True), tagged=True)
        self._enable_ttl()
        return created

    def check(self) -> None:
        """Make sure that the table fits and is of no newer format; mark it if it bears no marker."""
        self._check(self._await_active(exists=False))

    def _check(self, description: Mapping[str, Any], *, tagged: bool = False) -> None:
        self._verify_keys(description)
        found = self._marked_format()
        if found is None:
            found = self._add_marker(description)
        elif tagged:
            # Who just opens a table goes by the item: a look at the tags is one more request, and
            # an account has few of them.
            found = max(found, self._tag_if_missing(description))
        if found > TABLE_FORMAT:
            raise format_too_new(self.url, found)

    def describe(self) -> TableInfo:
        """Return the description of the table, with any keys."""
        description = self._describe()
        found, strings = self.calls.understand(_keys_of, description)
        marker = self._marker(found) if strings else None
        made = None if marker is None else marker.get("table_created")
        created = made / 1000 if type(made) is int else description.get("CreationDateTime")
        count = description.get("ItemCount")
        return TableInfo(
            url=self.url,
            schema=TableSchema(
                hash_key=found.hash_key, range_key=found.range_key, ttl_attribute=self._ttl_attribute()
            ),
            format=None if marker is None else self._format_in(marker),
            created=created if isinstance(created, (int, float)) else None,
            item_count=count if isinstance(count, int) else None,
            billing="on-demand" if self.calls.understand(_is_on_demand, description) else "provisioned",
            tags=self._own_tags(description),
        )

    def tag(self, tags: Mapping[str, str]) -> None:
        """See `Table.tag`."""
        if _TAG in tags:
            raise ConfigurationError(f"tag {_TAG!r} tells the format of the table: choose another key")
        if tags:
            self._put_tags(self._describe(), tags)

    def _own_tags(self, description: Mapping[str, Any]) -> dict[str, str] | None:
        try:
            pages = self._tags(description)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page if tag["Key"] != _TAG}
        except (AccessDenied, NotSupported):
            return None

    # keys

    def _key_members(self) -> dict[str, Any]:
        kinds = {self.schema.hash_key: "HASH"}
        if self.schema.range_key is not None:
            kinds[self.schema.range_key] = "RANGE"
        return {
            "TableName": self.name,
            "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in kinds],
            "KeySchema": [{"AttributeName": n, "KeyType": kind} for n, kind in kinds.items()],
        }

    def _verify_keys(self, description: Mapping[str, Any]) -> None:
        found, strings = self.calls.understand(_keys_of, description)
        if (found.hash_key, found.range_key) != (self.schema.hash_key, self.schema.range_key):
            raise wrong_schema(self.url, found=found, wanted=self.schema)
        if not strings:
            raise wrong_schema(self.url, found="has keys that are not strings", wanted=self.schema)

    # the table

    def _describe(self) -> Mapping[str, Any]:
        answer = self.calls.call("DescribeTable", {"TableName": self.name})
        return self.calls.understand(lambda said: _mapping(said["Table"]), answer)

    def _describe_new(self) -> Mapping[str, Any]:
        # DescribeTable may know nothing of a table for a while after CreateTable (its API reference).
        try:
            return self._describe()
        except TableNotFound:
            return {"TableStatus": "CREATING"}

    def _await_active(self, *, exists: bool) -> Mapping[str, Any]:
        deadline = self.clock.monotonic() + _READY_WITHIN
        while True:
            description = self._describe_new() if exists else self._describe()
            status = description.get("TableStatus")
            if status in ("ACTIVE", "UPDATING"):
                return description
            if status != "CREATING":
                raise Unavailable(f"table {self.url} is {status}; it cannot be used")
            if self.clock.monotonic() >= deadline:
                raise Unavailable(f"table {self.url} is still being made; try again later")
            self.clock.sleep(_LOOK_EVERY)

    # expiry

    def _enable_ttl(self) -> None:
        attribute = self.schema.ttl_attribute
        if attribute is None or self._ttl_attribute() is not None:
            return
        specification = {"Enabled": True, "AttributeName": attribute}
        try:
            self.calls.call(
                "UpdateTimeToLive",
                {"TableName": self.name, "TimeToLiveSpecification": specification},
            )
        except NotSupported:
            pass  # Then items stay for ever, which the port allows.
        except Refused:
            # Another creator was faster; anything else is worth telling.
            if self._ttl_attribute() is None:
                raise

    def _ttl_attribute(self) -> str | None:
        try:
            answer = self.calls.call("DescribeTimeToLive", {"TableName": self.name})
        except (AccessDenied, NotSupported):
            return None
        found = self.calls.understand(_mapping, answer.get("TimeToLiveDescription", {}))
        enabled = found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        name = found.get("AttributeName")
        return name if enabled and isinstance(name, str) else None

    # the marker and the tag

    def _marker(self, schema: TableSchema) -> Item | None:
        answer = self.calls.call(
            "GetItem",
            {"TableName": self.name, "Key": marshal(_marker_key(schema)), "ConsistentRead": True},
        )
        return unmarshal(answer["Item"], schema.key_names) if "Item" in answer else None

    def _marked_format(self) -> int | None:
        marker = self._marker(self.schema)
        return None if marker is None else self._format_in(marker)

    def _add_marker(self, description: Mapping[str, Any]) -> int:
        """Add the marker to a table that has none, and return its format."""
        tagged = self._tagged_format(description)
        if tagged is not None and tagged > TABLE_FORMAT:
            return tagged
        self._mark(tagged or TABLE_FORMAT)
        if tagged is None:
            self._tag(description)
        # Read it, because another client may have been faster, and be newer.
        return self._marked_format() or TABLE_FORMAT

    def _tag_if_missing(self, description: Mapping[str, Any]) -> int:
        """Return the format that the tag tells, which is made if there is none; 0 if it tells none."""
        tagged = self._tagged_format(description)
        if tagged is None:
            self._tag(description)
        return tagged or 0

    def _format_in(self, marker: Item) -> int:
        version = marker.get("table_version")
        if type(version) is not int:
            raise CorruptRecord(
                f"the item {MARKER_KEY!r} of {self.url} has no number 'table_version': "
                f"it is not a version marker. Use another table"
            )
        return version

    def _mark(self, version: int) -> None:
        marker: Item = {
            **_marker_key(self.schema),
            "table_version": version,
            "table_created": int(self.clock.epoch() * 1000),
        }
        condition = conditional(Absent(), self.schema)
        try:
            self.calls.call("PutItem", {"TableName": self.name, "Item": marshal(marker), **condition})
        except OutcomeUnknown:
            pass  # It may be there. If not, the next one to check puts it.
        except Refused as error:
            if error.code != "ConditionalCheckFailedException":
                raise

    def _tagged_format(self, description: Mapping[str, Any]) -> int | None:
        try:
            formats = map(_format_of, self._tags(description))
            return next((found for found in formats if found is not None), None)
        except (AccessDenied, NotSupported):
            return None

    def _tags(self, description: Mapping[str, Any]) -> Iterator[Sequence[Mapping[str, str]]]:
        """Yield the tags of the table, page by page."""
        request = {"ResourceArn": self._arn_of(description)}
        while True:
            answer = self.calls.call("ListTagsOfResource", request)
            yield self.calls.understand(_pairs_of, answer.get("Tags", ()))
            following = answer.get("NextToken")
            if following in (None, request.get("NextToken")):
                return
            request = {**request, "NextToken": self.calls.understand(_text_of, following)}

    def _arn_of(self, description: Mapping[str, Any]) -> str:
        return self.calls.understand(_text_of, description.get("TableArn", ""))

    def _tag(self, description: Mapping[str, Any]) -> None:
        # The marker alone will do; who may use a table need not be allowed to tag it.
        with suppress(CommitError):
            self._put_tags(description, {_TAG: str(TABLE_FORMAT)})

    def _put_tags(self, description: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        request = {"ResourceArn": self._arn_of(description), "Tags": pairs}
        self.calls.call("TagResource", request)


def _keys_of(description: Mapping[str, Any]) -> tuple[TableSchema, bool]:
    """Return the names of a table's keys, and whether all of them are strings."""
    names = {key["KeyType"]: key["AttributeName"] for key in description["KeySchema"]}
    types = {a["AttributeName"]: a["AttributeType"] for a in description["AttributeDefinitions"]}
    schema = TableSchema(hash_key=names["HASH"], range_key=names.get("RANGE"))
    return schema, all(types.get(name) == "S" for name in names.values())


def _format_of(tags: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the format that one of `tags` tells, if one does."""
    values = (tag["Value"] for tag in tags if tag["Key"] == _TAG)
    return next((int(value) for value in values if re.fullmatch("[0-9]{1,9}", value)), None)


def _pairs_of(tags: Iterable[Mapping[str, Any]]) -> Sequence[Mapping[str, str]]:
    """Return tags, each with its key and value as texts."""
    pairs = [{"Key": tag["Key"], "Value": tag["Value"]} for tag in tags]
    for pair in pairs:
        for text in pair.values():
            _text_of(text)
    return pairs


def _text_of(value: object) -> str:
    """Return a text that can be sent; raise `TypeError` or `ValueError` if it is none."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    value.encode()
    return value


def _is_on_demand(description: Mapping[str, Any]) -> bool:
    """Return whether a table is billed by the request; the answer for one that never was has no mode."""
    return bool(description.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST")


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value


def _marker_key(schema: TableSchema) -> dict[str, str]:
    return dict.fromkeys(schema.key_names, MARKER_KEY)
