"""The command that runs a stress test on a store and a table that it may write to.

::

    python -m commitlog.testing.stress --store 's3://bucket?endpoint_url=http://host:9000' \\
        --table 'dynamodb://commits?endpoint_url=http://host:8000' --seconds 60 --seed 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from attrs import fields

from commitlog.errors import CommitError
from commitlog.testing.linearizability import CheckUndecided
from commitlog.testing.stress.plan import StressSettings
from commitlog.testing.stress.run import run_stress

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stress test from the shell; return the exit status.

    It is 0 if the test passed, 1 if it failed, and 2 if no result was found.
    """
    parser = argparse.ArgumentParser(
        prog="python -m commitlog.testing.stress",
        description="Write conditionally from many processes and check the history of their calls.",
    )
    parser.add_argument(
        "--store", required=True, metavar="URL", help="s3://bucket?endpoint_url=http://…"
    )
    parser.add_argument(
        "--table", metavar="URL", help="dynamodb://table?endpoint_url=http://… or sqlite:///file"
    )
    parser.add_argument(
        "--mode", choices=["lease", "auto", "native"], help="default: lease with a table"
    )
    for name, kind, what in (
        ("seconds", float, "duration of the faults"),
        ("workers", int, "number of processes"),
        ("foreign", int, "number of workers that are clients of object_store"),
        ("seed", int, "seed of the plan"),
        ("timeout", float, "length of a lease in seconds"),
        ("skew", float, "max_clock_skew_rate"),
        ("rate", float, "share of requests that each kind of fault strikes"),
        ("interval", float, "average seconds between signals"),
    ):
        default = getattr(fields(StressSettings), name).default
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{what} (default: {default})")
    parser.add_argument(
        "--torn-reads",
        dest="whole_reads",
        action="store_false",
        help="reads may show parts of two versions, as those of JuiceFS do: read twice",
    )
    options = vars(parser.parse_args(arguments))
    options["mode"] = options["mode"] or ("native" if options["table"] is None else "lease")
    try:
        report = run_stress(StressSettings(**options))
    except (CommitError, CheckUndecided) as error:
        print(f"stress: {error}", file=sys.stderr)
        return 2
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
