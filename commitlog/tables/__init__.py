"""Tables: the port, and the tables that implement it.

The implementations (`memory`, `sqlite`, `dynamodb`) are imported when a URL asks for them.
"""

from commitlog.tables.api import (
    TABLE_FORMAT,
    Absent,
    All,
    Check,
    ConditionFailed,
    Delete,
    Equals,
    InFlight,
    Item,
    ItemPage,
    Key,
    Put,
    Table,
    TableCondition,
    TableInfo,
    TableSchema,
    Value,
    Write,
)

__all__ = [
    "TABLE_FORMAT",
    "Absent",
    "All",
    "Check",
    "ConditionFailed",
    "Delete",
    "Equals",
    "InFlight",
    "Item",
    "ItemPage",
    "Key",
    "Put",
    "Table",
    "TableCondition",
    "TableInfo",
    "TableSchema",
    "Value",
    "Write",
]
