"""Conditions as DynamoDB's expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commitlog.tables.api import Absent, TableCondition, TableSchema, Value, parts_of
from commitlog.tables.marshal import Wire, marshal_value

__all__ = ["Expressions", "conditional"]


class Expressions:
    """Placeholders for the names and values in the expressions of one request.

    Every name gets one: ``path``, ``ttl`` and ``timeout`` are among DynamoDB's reserved words.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: Wire = {}

    def name(self, attribute: str) -> str:
        """Return what stands for the name of an attribute."""
        return self._names.setdefault(attribute, f"#n{len(self._names)}")

    def value(self, value: Value) -> str:
        """Return what stands for a value."""
        placeholder = f":v{len(self._values)}"
        self._values[placeholder] = marshal_value(value)
        return placeholder

    def members(self) -> dict[str, Any]:
        """Return the members of a request that explain the placeholders."""
        members: dict[str, Any] = {}
        if self._names:
            members["ExpressionAttributeNames"] = {mark: name for name, mark in self._names.items()}
        if self._values:
            members["ExpressionAttributeValues"] = self._values
        return members


def conditional(condition: TableCondition | None, schema: TableSchema) -> Mapping[str, Any]:
    """Return the members of a request by which `condition` is checked, the old item returned if not.

    >>> from commitlog.tables import Absent, Equals
    >>> schema = TableSchema(hash_key="path", range_key="etag")
    >>> conditional(Absent(), schema)["ConditionExpression"]
    'attribute_not_exists(#n0)'
    >>> conditional(Equals("generation", 3) & Absent("owner"), schema)["ConditionExpression"]
    '#n0 = :v0 AND attribute_not_exists(#n1)'
    """
    marks = Expressions()
    terms = []
    for part in parts_of(condition):
        if isinstance(part, Absent):
            # There is no item under a key exactly if the item there has no key attribute.
            terms.append(f"attribute_not_exists({marks.name(part.attribute or schema.hash_key)})")
        else:
            terms.append(f"{marks.name(part.attribute)} = {marks.value(part.value)}")
    if not terms:
        return {}
    return {
        "ConditionExpression": " AND ".join(terms),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        **marks.members(),
    }
