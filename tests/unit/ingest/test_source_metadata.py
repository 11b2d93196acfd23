"""The metadata of a source: settings and schema, stored with its state."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from commitlog.errors import ConfigurationError, CorruptRecord, FormatTooNew, OutcomeUnknown
from commitlog.ingest import (
    IngestAdmin,
    IngestSettings,
    PathFilter,
    Quarantine,
    SourceMetadata,
    StateTable,
    sources,
)
from commitlog.ingest.source_metadata import SCHEMA, SETTINGS
from commitlog.tables.api import Item, Table
from commitlog.testing import ManualClock
from support.fuzzing import HOSTILE, outcome, replaced, says, sealed
from support.ingest import Bucket, Engine, state_table

SETTINGS_OF_S = IngestSettings(
    source="s",
    prefix="in/",
    names=PathFilter(glob="*/*.json", name="[!x]*", hidden=True),
    max_files=7,
    max_bytes=8,
    starting_from=1.5,
    max_file_age=9.0,
    grace=10.0,
    remember="everything",
    ordered=True,
    list_limit=11,
    slice_bytes=12,
    keep_epochs=13,
    changed="ignore",
    missing="skip",
    unreadable="quarantine",
    clean="archive",
    clean_delay=14.0,
    archive="_old/",
    listing_interval=15.0,
)
METADATA = SourceMetadata(url="s3://lake/p?region=eu-west-1", format="json", settings=SETTINGS_OF_S)


def raw(item: Item) -> bytes:
    """Return the body of a row as it is stored."""
    body = item["body"]
    assert isinstance(body, bytes)
    return body


def body_of(metadata: SourceMetadata) -> dict[str, Any]:
    """Return the fields of the row."""
    stored = json.loads(raw(metadata.to_item()))
    return {name: stored[name] for name in stored.keys() - {"format", "kind", "checksum"}}


def item_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return a row with these fields."""
    return {"source": "s", "item": SETTINGS, "body": sealed("ingest-settings", body)}


DEFAULTS = body_of(SourceMetadata(url="s3://lake", format="", settings=IngestSettings(source="s")))


def test_every_setting_is_stored() -> None:
    """The metadata that is read equals the metadata that was written."""
    default = IngestSettings(source="s")
    for field in attrs.fields(IngestSettings):
        if field.name != "source":  # with a default value the comparison below would prove nothing
            assert getattr(default, field.name) != getattr(SETTINGS_OF_S, field.name), field.name
    for metadata in (METADATA, SourceMetadata(url="file:///d", format="csv", settings=default)):
        assert SourceMetadata.from_item(metadata.to_item()) == metadata


def test_the_url_has_no_secret() -> None:
    """Credentials in a URL are dropped before the URL is stored or shown."""
    metadata = SourceMetadata(
        url="s3://lake/p?region=x&secret_access_key=geheim&access_key_id=geheim&session_token=geheim",
        format="json",
        settings=SETTINGS_OF_S,
    )
    assert metadata.url == "s3://lake/p?region=x"
    assert "geheim" not in repr(metadata) and b"geheim" not in raw(metadata.to_item())


def test_settings_of_other_releases_are_read() -> None:
    """An unknown setting is ignored, and a missing one has its default."""
    body = body_of(METADATA)
    body["settings"]["colour"] = {"of": "magic"}
    body["settings"]["names"]["case"] = True
    body["more"] = 1
    del body["settings"]["list_limit"], body["settings"]["names"]["hidden"]
    read = SourceMetadata.from_item(item_of(body)).settings
    names = attrs.evolve(SETTINGS_OF_S.names, hidden=False)
    assert read == attrs.evolve(SETTINGS_OF_S, list_limit=None, names=names)


def test_a_newer_format_is_refused() -> None:
    """Its content is not read."""
    for kind, name, read in (
        ("ingest-settings", SETTINGS, StateTable.metadata),
        ("ingest-schema", SCHEMA, StateTable.schema),
    ):
        table = state_table()
        table.put({"source": "s", "item": name, "body": sealed(kind, {}, format=2)})
        with pytest.raises(FormatTooNew):
            read(StateTable(table, "s"))


def test_a_damaged_row_is_read_or_corrupt() -> None:
    """Any value of a field is read as it is stored, or makes the row corrupt."""
    for body in replaced(body_of(METADATA)):
        if not isinstance(body, dict):
            continue
        read = outcome(lambda: SourceMetadata.from_item(item_of(body)), CorruptRecord)  # noqa: B023
        if isinstance(read, SourceMetadata):
            settings = {**DEFAULTS["settings"], **body["settings"]}
            settings["names"] = {**DEFAULTS["settings"]["names"], **settings["names"]}
            assert says({**body, "settings": settings}, {**body_of(read), "url": body["url"]})


def test_another_value_than_a_schema_is_corrupt() -> None:
    """A schema is a text."""
    table = state_table()
    for body in HOSTILE:
        table.put({"source": "s", "item": SCHEMA, "body": sealed("ingest-schema", {"schema": body})})
        found = outcome(StateTable(table, "s").schema, CorruptRecord)
        assert isinstance(found, CorruptRecord) or (isinstance(body, str) and found == body)


def test_the_first_schema_is_kept() -> None:
    """A second query gets the stored schema. Each source has its own."""
    table = state_table()
    assert StateTable(table, "s").schema() is None
    assert StateTable(table, "s").fix_schema("a INT") == "a INT"
    assert StateTable(table, "s").fix_schema("b INT") == "a INT"
    assert StateTable(table, "s").schema() == "a INT"
    assert StateTable(table, "t").schema() is None


class Lossy:
    """A table that loses the responses to puts, before or after they are applied."""

    def __init__(self, table: Table, *, happens: bool) -> None:
        self.table = table
        self.happens = happens
        self.puts = 0

    def put(self, *arguments: Any, **options: Any) -> None:
        """Put, or not, and lose the response."""
        self.puts += 1
        if self.happens:
            self.table.put(*arguments, **options)
        raise OutcomeUnknown("lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


def test_a_lost_response_is_resolved_by_a_read() -> None:
    """If the row was written, the call succeeds. Otherwise the outcome is unknown; a retry is safe."""
    table = state_table()
    for happens in (False, True):
        state = StateTable(Lossy(table, happens=happens), "s")  # type: ignore[arg-type]
        if happens:
            assert state.fix_schema("a INT") == "a INT"
            state.describe(METADATA)
        else:
            for call in (lambda: state.fix_schema("a INT"), lambda: state.describe(METADATA)):  # noqa: B023
                with pytest.raises(OutcomeUnknown):
                    call()
    assert StateTable(table, "s").fix_schema("b INT") == "a INT"
    assert StateTable(table, "s").metadata() == METADATA


def test_settings_are_written_when_they_change() -> None:
    """A start with unchanged settings costs one read. Other settings replace the record.

    A damaged record, or one of a newer release, is replaced as well.
    """
    table = state_table()
    state = StateTable(table, "s")
    assert state.metadata() is None
    state.describe(METADATA)
    StateTable(Lossy(table, happens=False), "s").describe(METADATA)  # type: ignore[arg-type]
    changed = attrs.evolve(METADATA, settings=attrs.evolve(SETTINGS_OF_S, max_files=8))
    state.describe(changed)
    assert state.metadata() == changed
    table.put({"source": "s", "item": SETTINGS, "body": sealed("ingest-settings", {}, format=2)})
    state.describe(METADATA)
    assert state.metadata() == METADATA


def test_metadata_does_not_interfere_with_the_state() -> None:
    """Reading, quarantine, retry and backlog work with metadata in the table.

    A reset removes the metadata of its source, and none of another source.
    """
    clock = ManualClock()
    store, table = Bucket(clock=clock), state_table()
    settings = IngestSettings(source="s", max_files=1)
    for source in "rst":
        StateTable(table, source).fix_schema("a INT")
        StateTable(table, source).describe(
            SourceMetadata(
                url="s3://lake", format="json", settings=attrs.evolve(settings, source=source)
            )
        )
    assert sources(table) == []
    for path in "abc":
        store.put(path, b"123")
    engine = Engine(store=store, table=table, settings=settings, clock=clock)
    assert engine.batch()
    operator = IngestAdmin(store, table, settings, clock=clock)
    assert operator.backlog().files == 2
    problems = Quarantine(table, "s", clock=clock)
    (slice,) = engine.checkpoint.slices[0]
    problems.report(1, slice, "unreadable", "bad", records=1)
    assert [problem.slice for problem in operator.problems()] == [slice]
    assert len(operator.retry()) == 1
    again = Engine(store=store, table=table, settings=settings, clock=clock)
    again.checkpoint = engine.checkpoint
    assert again.drain() == 3
    assert sum(engine.checkpoint.records.values()) == 9 + 2
    assert operator.reset() > 3
    assert list(table.query("s")) == []
    for source in "rt":
        assert (
            StateTable(table, source).schema() == "a INT"
            and StateTable(table, source).metadata() is not None
        )


@pytest.mark.parametrize("name", ["grace", "max_file_age", "starting_from"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_setting_that_cannot_be_stored_is_refused(name: str, value: float) -> None:
    """JSON has neither infinity nor "not a number", and no age or time has such a value."""
    values: Any = {name: value}
    with pytest.raises(ConfigurationError, match=name):
        attrs.evolve(SETTINGS_OF_S, **values)
