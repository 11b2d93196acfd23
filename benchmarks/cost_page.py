"""The tables of docs/cost.md. ``.venv/bin/python benchmarks/cost_page.py`` writes them into the page.

A table is below a comment with its name, ``<!-- table: NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from pricing import CONTENDERS, US_EAST_1, ConditionalWrite, Usage, operations

from commitlog.outputs import Visibility

__all__ = ["PAGE", "filled", "tables"]

PAGE = Path(__file__).parents[1] / "docs" / "cost.md"

#: Bytes that DynamoDB adds to each stored item, see
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html.
_ITEM_OVERHEAD = 100

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n\n)((?:\|.*\n)*)\n?")

#: Columns of a usage.
_USAGE = ("PUT", "GET", "write units", "read units")

_SIZES = (1, 10, 100, 1_000)


def filled(text: str) -> str:
    """Return the page with the present tables."""
    found = tables()

    def table(match: re.Match[str]) -> str:
        return match[1] + "".join(f"{line}\n" for line in [*found.pop(match[2]), ""])

    text = _TABLE.sub(table, text)
    assert not found, f"the page lacks {sorted(found)}"
    return text


def tables() -> dict[str, list[str]]:
    """Return the lines of each table, by name."""
    return {
        "prices": _prices(),
        "writes": _writes(),
        "jobs": _jobs(),
        "names": _names(),
        "ingest": _ingest(),
        "storage": _storage(),
        "others": _others(),
    }


def _prices() -> list[str]:
    prices = US_EAST_1
    return _table(
        ("price", "dollars"),
        [
            ("1,000 PUT, COPY, POST, LIST of S3 Standard", f"{prices.s3_put_per_thousand:g}"),
            ("1,000 GET, HEAD", f"{prices.s3_get_per_thousand:g}"),
            ("1,000 DELETE", "0"),
            ("1,000,000 write units, on demand", f"{prices.dynamodb_write_per_million:g}"),
            ("1,000,000 read units, on demand", f"{prices.dynamodb_read_per_million:g}"),
            ("write capacity unit, provisioned, an hour", f"{prices.dynamodb_wcu_hour:.5f}"),
            ("read capacity unit, provisioned, an hour", f"{prices.dynamodb_rcu_hour:.5f}"),
            (
                f"stored GB, a month, above {prices.dynamodb_free_gb:g} GB",
                f"{prices.dynamodb_gb_month:g}",
            ),
            ("point-in-time recovery of a GB, a month", f"{prices.dynamodb_pitr_gb_month:g}"),
            ("1,000,000 requests to SQS", f"{prices.sqs_per_million:g}"),
        ],
    )


def _writes() -> list[str]:
    rows = []
    for write in get_args(ConditionalWrite):
        for leases in (False, True):
            for refused in (False, True):
                usage = operations.conditional_write(write, leases=leases, refused=refused)
                how = "leases" if leases else "the store"
                rows.append((f"`{write}`{', refused' * refused}", how, *_counts(usage), _million(usage)))
    return _table(("call", "condition by", *_USAGE, "dollars per million"), rows)


def _jobs() -> list[str]:
    rows = []
    for visibility in get_args(Visibility):
        for leases in (False, True):
            jobs = [operations.output_job(n, visibility=visibility, leases=leases) for n in (0, *_SIZES)]
            rows.append(
                (
                    f"`{visibility}`",
                    "leases" if leases else "the store",
                    f"3 n + {jobs[0].put_requests:g}",
                    *_counts(jobs[0])[1:],
                    *(f"{1_000 * US_EAST_1.dollars(usage):,.2f}" for usage in jobs[1:]),
                )
            )
    heads = ("output", "conditions by", *_USAGE, *(f"n = {size:,}" for size in _SIZES))
    return _table(heads, rows)


def _names() -> list[str]:
    rows = []
    many = 1_000_000
    how: dict[str, Any] = {}
    for log in (True, False):
        how = {"log": log}
        with_log = "" if log else ", without a log"
        rows += [
            (f"create a file{with_log}", operations.create_file(**how)),
            (f"link a file in bulk{with_log}", 1 / many * operations.bulk_link(many, 2, **how)),
            (f"rename a file{with_log}", operations.rename_file(**how)),
            (f"rename a directory{with_log}", operations.rename_directory(**how)),
            (f"delete a file{with_log}", operations.delete_file(**how)),
            (f"remove its content{with_log}", 1 / many * operations.collect_garbage(many, **how)),
        ]
    rows += [
        ("create a file, log by leases", operations.create_file(leases=True)),
        ("look a file up", operations.look_up()),
        ("list a file, of 1,000 in a directory", 1 / 1_000 * operations.list_directory(1_000, 2)),
    ]
    return _table(
        ("operation", *_USAGE, "dollars per million"),
        [(name, *_counts(usage), _million(usage)) for name, usage in rows],
    )


def _ingest() -> list[str]:
    rows = []
    for files in (10, 100, 1_000):
        for notified in (False, True):
            keys = (1_000,) if notified else (1_000, 100_000, 1_000_000)
            cells = [_million_objects(files, listed, notified) for listed in keys]
            usage = operations.ingest_epoch(files, listed_keys=1_000, notified=notified)
            how = "notifications" if notified else "a listing"
            queue = f"{usage.queue_requests:g}"
            rows.append((how, f"{files:,}", *_counts(usage), queue, *(cells * 3)[:3]))
    heads = ("found by", "objects in a batch", *_USAGE, "queue")
    return _table((*heads, "1,000 keys", "100,000 keys", "1,000,000 keys"), rows)


def _million_objects(files: int, keys: int, notified: bool) -> str:
    epoch = operations.ingest_epoch(files, listed_keys=keys, notified=notified)
    return _million(1 / files * epoch)


def _storage() -> list[str]:
    rows = []
    for names in (0, 1_000_000, 100_000_000):
        stored = names * (operations.ENTRY_BYTES + _ITEM_OVERHEAD)
        cells = [
            US_EAST_1.storage_dollars(stored),
            US_EAST_1.storage_dollars(stored + US_EAST_1.dynamodb_free_gb * 10**9)
            - US_EAST_1.storage_dollars(US_EAST_1.dynamodb_free_gb * 10**9),
            US_EAST_1.storage_dollars(stored, recovery=True) - US_EAST_1.storage_dollars(stored),
        ]
        rows.append((f"{names:,}", f"{stored / 10**9:.2f}", *(f"{cell:,.2f}" for cell in cells)))
    heads = ("files", "GB", "storage", "storage, without free GB left", "point-in-time recovery")
    return _table(heads, rows)


def _others() -> list[str]:
    rows = []
    for name, usage_of in CONTENDERS.items():
        usages = [usage_of(size) for size in _SIZES]
        rows.append(
            (
                name,
                *(f"{number:,.5g}" for number in _numbers(usages[2])),
                *(f"{1_000 * US_EAST_1.dollars(usage):,.2f}" for usage in usages),
            )
        )
    heads = ("job", *_USAGE, *(f"n = {size:,}" for size in _SIZES))
    return _table(heads, rows)


def _numbers(usage: Usage) -> tuple[float, ...]:
    return (usage.put_requests, usage.get_requests, usage.write_units, usage.read_units)


def _counts(usage: Usage) -> tuple[str, ...]:
    # Less than a thousandth of a request is that of a call for very many objects.
    return tuple("0" if number < 0.001 else f"{number:.4g}" for number in _numbers(usage))


def _million(usage: Usage) -> str:
    return f"{1_000_000 * US_EAST_1.dollars(usage):,.2f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    first = sum(not head[0].isdigit() and head not in _USAGE for head in heads[:2])
    rule = ["---"] * first + ["---:"] * (len(heads) - first)
    return [f"| {' | '.join(heads)} |", f"|{'|'.join(rule)}|"] + [
        f"| {' | '.join(row)} |" for row in rows
    ]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
