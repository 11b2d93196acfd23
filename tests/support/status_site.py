"""An output, a namespace, leases and a source below one directory, for ``commitlog status``."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import define
from click.testing import CliRunner, Result

import commitlog
from commitlog.cli import main
from commitlog.clock import SystemClock
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.ingest import INGEST_SCHEMA, IngestSettings, SourceMetadata, StateTable
from commitlog.outputs import Output
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from support.ingest import Checkpoint, Engine
from support.outputs import add_job, stage_some

__all__ = ["Site", "new_site"]


@define
class Site:
    """An output, a namespace, a table of leases and a source, below one directory."""

    root: Path

    @property
    def output(self) -> str:
        """The URL of the output."""
        return f"{self.root}/lake/out"

    @property
    def urls(self) -> list[str]:
        """The URLs of all targets."""
        return [self.output, "commitlog://names", self.leases, self.ingest]

    @property
    def leases(self) -> str:
        """The URL of the table of leases."""
        return f"sqlite://{self.root}/leases.db"

    @property
    def ingest(self) -> str:
        """The URL of the state of the source."""
        return f"sqlite://{self.root}/ingest.db"

    def run(self, *words: str) -> Result:
        """Run the command."""
        env = {"COMMITLOG_METADATA": f"sqlite://{self.root}/names.db"}
        done = CliRunner(env=env).invoke(main, ["status", *words])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def records(self, *words: str, status: int) -> list[dict[str, Any]]:
        """Return the JSON objects that the command printed, one a line."""
        done = self.run(*words, "--json")
        assert done.exit_code == status, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def dead_job(self) -> None:
        """Leave a job whose driver died."""
        with commitlog.connect(f"file://{self.root}/lake") as store:
            output = Output(store, "out")
            stage_some(output, output.begin("dead"))

    def deleted_directory(self) -> None:
        """Delete a directory of the namespace."""
        metadata = f"sqlite://{self.root}/names.db"
        with commitlog.open_namespace("names", metadata=metadata) as namespace:
            namespace.write("d/a", b"1")
            namespace.delete("d", recursive=True)

    def late_lease(self) -> None:
        """Leave a lease whose holder died."""
        ttl = int(SystemClock().epoch()) - 500 + 3600
        record = LeaseRecord(path="k", etag="*", generation=1, timeout=20_000, ttl=ttl, owner="w")
        with closing(open_table(self.leases, LEASE_SCHEMA)) as table:
            table.put(record.to_item())

    def late_file(self) -> None:
        """Store a file that the query has not read."""
        with closing(open_store(f"file://{self.root}/in")) as store:
            store.put("late", b"12345")


def new_site(root: Path) -> Site:
    """Create targets that need no attention."""
    site = Site(root)
    with commitlog.connect(f"file://{root}/lake") as store:
        add_job(Output(store, "out"), "a", 0)
    metadata = f"sqlite://{root}/names.db"
    commitlog.create_namespace("names", store=f"file://{root}/content", metadata=metadata).close()
    with closing(open_table(site.leases, LEASE_SCHEMA)) as table:
        table.create()
    settings = IngestSettings(source="s")
    with (
        closing(open_table(site.ingest, INGEST_SCHEMA)) as table,
        closing(open_store(f"file://{root}/in")) as input,
    ):
        table.create()
        input.put("first", b"1")
        StateTable(table, "s").describe(
            SourceMetadata(url=f"file://{root}/in", format="json", settings=settings)
        )
        Engine(
            store=input,
            table=table,
            settings=settings,
            clock=SystemClock(),
            checkpoint=Checkpoint(),
        ).batch()
    return site
