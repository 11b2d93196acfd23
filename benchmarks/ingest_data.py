"""Files for sources to read: events as JSON lines and as Parquet, in small or large files."""

from __future__ import annotations

import json
import os
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import frozen

__all__ = ["ROW_BYTES", "SCHEMA", "DataSet", "write_json", "write_parquet", "write_tiny"]

#: Spark schema of the events.
SCHEMA = (
    "id BIGINT, time TIMESTAMP, kind STRING, customer STRUCT<id: BIGINT, name: STRING>, price DOUBLE,"
    " paid BOOLEAN, note STRING"
)
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("kind", pa.string()),
        ("customer", pa.struct([("id", pa.int64()), ("name", pa.string())])),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
        ("note", pa.string()),
    ]
)
_KINDS = ("view", "order", "return", "message")

#: 2023-11-14, in microseconds.
_FIRST = 1_700_000_000_000_000

#: Approximate bytes of a row in Parquet. In JSON a row takes four times as much.
ROW_BYTES = 45

#: Number of different rows. Large files repeat them.
_DIFFERENT = 20_000


@frozen(kw_only=True)
class DataSet:
    """Files of one kind.

    Attributes:
        path: the directory of the files.
        format: ``json`` or ``parquet``.
        files: number of files.
        rows: number of rows in all files.
        bytes: size of all files.
    """

    path: Path
    format: str
    files: int
    rows: int
    bytes: int


def _rows(count: int) -> list[dict[str, Any]]:
    chance = random.Random(count)
    return [
        {
            "id": number,
            "time": _FIRST + number * 1_234_000,
            "kind": chance.choice(_KINDS),
            "customer": {"id": chance.randrange(10**6), "name": f"customer {chance.randrange(10**6)}"},
            "price": round(chance.uniform(1, 1000), 2),
            "paid": chance.random() < 0.5,
            "note": None if chance.random() < 0.5 else f"{chance.getrandbits(128):032x}",
        }
        for number in range(count)
    ]


def write_json(path: Path, *, files: int, file_bytes: int) -> DataSet:
    """Write `files` files of JSON lines, each of about `file_bytes` bytes."""
    path.mkdir(parents=True)
    lines = []
    for row in _rows(_DIFFERENT):
        seconds, millis = divmod(row["time"] // 1000, 1000)
        moment = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03}Z"
        lines.append(json.dumps(row | {"time": moment}).encode() + b"\n")
    rows = size = at = 0
    for number in range(files):
        body: list[bytes] = []
        left = file_bytes
        while left > 0:
            body.append(lines[at % len(lines)])
            left -= len(body[-1])
            at += 1
        rows += len(body)
        size += (path / f"{number:06}.json").write_bytes(b"".join(body))
    return DataSet(path=path, format="json", files=files, rows=rows, bytes=size)


def write_parquet(path: Path, *, files: int, file_rows: int) -> DataSet:
    """Write `files` Parquet files, each of `file_rows` rows."""
    path.mkdir(parents=True)
    block = pa.Table.from_pylist(_rows(min(_DIFFERENT, file_rows)), _ARROW)
    rest = pa.concat_tables([block] * -(-file_rows // block.num_rows)).slice(0, file_rows)
    size = 0
    for number in range(files):
        ids = pa.array(range(number * file_rows, (number + 1) * file_rows), pa.int64())
        times = pc.add(pc.multiply(ids, 1000), _FIRST).cast(_ARROW.field("time").type)
        table = rest.set_column(0, "id", ids).set_column(1, "time", times)
        file = path / f"{number:06}.parquet"
        # Only `kind` gets a dictionary: real files would not repeat the other values.
        pq.write_table(table, file, use_dictionary=["kind"], row_group_size=500_000)
        size += file.stat().st_size
    return DataSet(path=path, format="parquet", files=files, rows=files * file_rows, bytes=size)


def write_tiny(path: Path, first: int, count: int, *, age: float = 0.0) -> list[Path]:
    """Write `count` files of one event each under hidden names. Return their visible names.

    A file becomes visible when it is renamed to its visible name. Its modification time is `age` seconds
    ago.
    """
    path.mkdir(parents=True, exist_ok=True)
    names = [path / f"{number:09}.json" for number in range(first, first + count)]
    moment = time.time() - age
    for number, name in enumerate(names, first):
        hidden = name.with_name("." + name.name)
        hidden.write_text(f'{{"id": {number}, "kind": "view"}}\n')
        os.utime(hidden, (moment, moment))
    return names
