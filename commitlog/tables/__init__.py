"""Tables: the port, and the tables that implement it.

`open_table` opens a table from a URL. It imports the implementation (`memory`, `sqlite`, `dynamodb`)
that the URL needs. The port is in `api`; `rules` and `marshal` have what the implementations share, and
`counting_table` a table that counts requests, and `rate_limit` one whose writes keep to a rate.
`sqlite_connection` is the connection of `sqlite`.
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
from commitlog.tables.memory import MemoryTable
from commitlog.tables.open import open_table

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
    "MemoryTable",
    "Put",
    "Table",
    "TableCondition",
    "TableInfo",
    "TableSchema",
    "Value",
    "Write",
    "open_table",
]
