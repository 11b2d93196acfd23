"""A daily job for an orchestrator: its id is made from the logical date, so a repeated run adds nothing.

The orchestrator calls `publish_day`, in any process, as often as it likes. See docs/recipes.md.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from commitlog import connect
from commitlog.errors import JobAlreadyCommitted
from commitlog.outputs import Output

__all__ = ["publish_day"]


def publish_day(
    day: date, tables: Mapping[str, Iterable[Sequence[object]]], url: str, table: str | None = None
) -> int:
    """Publish the tables of a day, all or none; return the version of the output that has them.

    Args:
        day: the logical date of the run, not the date on which it happens to run.
        tables: the rows of each table, by its name.
        url: URL of the output.
        table: URL of a table for leases, for a store that does not enforce preconditions.
    """
    with connect(url, table=table) as store:
        output = Output(store)
        try:
            job = output.begin(f"sales-{day.isoformat()}")
        except JobAlreadyCommitted as error:
            return error.version
        try:
            files = []
            for number, (name, rows) in enumerate(tables.items()):
                text = io.StringIO()
                csv.writer(text).writerows(rows)
                path = f"table={name}/day={day.isoformat()}/{job.file_name(number, suffix='.csv')}"
                files.append(output.stage(job, path, text.getvalue().encode()))
            return output.commit(job, files).version
        except BaseException:
            output.abort(job)  # does nothing if the job is committed
            raise
