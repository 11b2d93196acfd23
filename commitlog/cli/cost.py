"""The command ``cost``, which prices the requests of a month."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import add
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click
from attrs import asdict

from commitlog.cli.output import json_option, print_columns, print_json
from commitlog.cost import CONTENDERS, US_EAST_1, Billing, Line, PriceTable, Usage, Workload
from commitlog.errors import ConfigurationError

__all__ = ["cost"]

R = TypeVar("R")

#: The numbers of operations in a month: option, number of the example, help.
_AMOUNTS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "conditional-writes": (1_000_000, "Conditional writes of objects."),
        "jobs": (1_000, "Jobs of outputs."),
        "names": (1_000_000, "Files that are created in namespaces, one by one."),
        "linked-names": (1_000_000, "Files that are linked by bulk_link."),
        "renames": (1_000_000, "Files that are renamed."),
        "lookups": (1_000_000, "Files that are looked up."),
        "deletes": (1_000_000, "Files that are deleted, and whose content is removed."),
        "objects": (1_000_000, "Objects that a source of ingest reads."),
        "idle-epochs": (0, "Batches of a source that find nothing."),
        "stored-names": (1_000_000, "Files whose names are stored in tables."),
    }
)

#: The sizes of operations: option, default, least, help.
_SIZES: Mapping[str, tuple[int, int, str]] = MappingProxyType(
    {
        "files-per-job": (100, 0, "Files of each job."),
        "path-names": (3, 1, "Names in a path of a namespace."),
        "epoch-files": (100, 1, "Objects in each batch of a source."),
        "listed-keys": (1_000, 0, "Keys that each batch lists."),
    }
)


def _number_options(command: Callable[..., R]) -> Callable[..., R]:
    for name, (default, least, help) in reversed(tuple(_SIZES.items())):
        command = click.option(
            f"--{name}", type=click.IntRange(min=least), default=default, show_default=True, help=help
        )(command)
    for name, (example, help) in reversed(tuple(_AMOUNTS.items())):
        text = f"{help}  [example: {example}]" if example else help
        command = click.option(f"--{name}", type=click.IntRange(min=0), metavar="N", help=text)(command)
    return command


def _workload(numbers: Mapping[str, Any]) -> Workload:
    """Return the operations that are named, or those of the example if none is."""
    amounts = {name.replace("-", "_"): example for name, (example, _) in _AMOUNTS.items()}
    named = {name: numbers[name] for name in amounts if numbers[name] is not None}
    others = {name: value for name, value in numbers.items() if name not in amounts}
    return Workload(**others, **(named or amounts))


@click.command()
@_number_options
@click.option(
    "--refused",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of the conditional writes whose condition does not hold.",
)
@click.option("--leases", is_flag=True, help="Conditions are enforced by leases, not by the store.")
@click.option(
    "--visibility",
    type=click.Choice(["listed", "logged"]),
    default="listed",
    show_default=True,
    help="Visibility of the outputs.",
)
@click.option("--log/--no-log", default=True, show_default=True, help="Namespaces have logs.")
@click.option("--notified", is_flag=True, help="Notifications name new objects; nothing is listed.")
@click.option("--pitr", is_flag=True, help="Tables have point-in-time recovery.")
@click.option(
    "--billing",
    type=click.Choice(["on-demand", "provisioned"]),
    default="on-demand",
    show_default=True,
    help="Billing of the tables.",
)
@click.option(
    "--utilization",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.7,
    show_default=True,
    help="Used share of provisioned capacity.",
)
@click.option("--compare", is_flag=True, help="Add the jobs by other systems.")
@click.option(
    "--prices",
    "price_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Use the prices in this file.",
)
@click.option("--print-prices", is_flag=True, help="Print the prices as JSON, for --prices, and end.")
@json_option
def cost(
    price_file: Path | None,
    print_prices: bool,
    billing: Billing,
    utilization: float,
    pitr: bool,
    compare: bool,
    json: bool,
    **numbers: Any,
) -> None:
    """Estimate the price of a month of requests to S3, DynamoDB and SQS.

    All numbers are those of a month. Without any number of operations, the month is an example. Not
    included are requests that fail and are repeated, data transfer, encryption keys, logging, and the
    storage of objects. The prices are list prices of us-east-1, unless --prices names others. Nothing is
    sent.

    \b
    Example:
      commitlog cost --jobs 30000 --files-per-job 200 --compare
      commitlog cost --print-prices > prices.json
      commitlog cost --prices prices.json --billing provisioned
    """
    prices = US_EAST_1 if price_file is None else _read(price_file)
    if print_prices:
        click.echo(prices.to_json())
        return
    workload = _workload(numbers)
    lines = list(workload.lines())
    total = reduce(add, (line.usage for line in lines), Usage())

    def dollars(usage: Usage) -> float:
        return prices.dollars(usage, billing=billing, utilization=utilization)

    storage = prices.storage_dollars(workload.stored_bytes, recovery=pitr)
    others = [
        Line(operation=name, times=workload.jobs, usage=workload.jobs * usage(workload.files_per_job))
        for name, usage in CONTENDERS.items()
        if compare and workload.jobs
    ]
    if json:
        print_json(
            {
                "region": prices.region,
                "date": prices.date,
                "lines": [_record(line, dollars(line.usage)) for line in lines],
                "storage_bytes": workload.stored_bytes,
                "storage_dollars": round(storage, 6),
                "dollars": round(dollars(total) + storage, 6),
                "others": [_record(line, dollars(line.usage)) for line in others],
            }
        )
        return
    rows: list[tuple[str, ...]] = [
        ("OPERATION", "TIMES", "PUT", "GET", "WRITE UNITS", "READ UNITS", "QUEUE", "DOLLARS")
    ]
    rows += [_row(line, dollars(line.usage)) for line in lines]
    rows.append((f"storage of {workload.stored_bytes:,} bytes", *[""] * 6, f"{storage:,.4f}"))
    rows.append(("total", *[""] * 6, f"{dollars(total) + storage:,.4f}"))
    rows += [_row(line, dollars(line.usage)) for line in others]
    print_columns(rows, right=range(1, 8))
    click.echo(f"\nprices of {prices.region}, {prices.date}, {billing}")


def _read(file: Path) -> PriceTable:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the price table {file} cannot be read: {error}") from error
    return PriceTable.from_json(text)


def _record(line: Line, dollars: float) -> dict[str, Any]:
    return {
        "operation": line.operation,
        "times": line.times,
        "usage": asdict(line.usage),
        "dollars": round(dollars, 6),
    }


def _row(line: Line, dollars: float) -> tuple[str, ...]:
    usage = line.usage
    counts = (
        line.times,
        usage.put_requests,
        usage.get_requests,
        usage.write_units,
        usage.read_units,
        usage.queue_requests,
    )
    return (line.operation, *(f"{count:,.0f}" for count in counts), f"{dollars:,.4f}")
