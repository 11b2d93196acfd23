"""Options of the source ``commitlog_ingest``."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog.errors import ConfigurationError
from commitlog.files import INPUT_FORMATS
from commitlog.ingest import IngestSettings, PathFilter
from commitlog.spark.ingest import options as ingest_options
from commitlog.spark.ingest.options import IngestOptions
from commitlog.spark.options import connection_names, queue_names
from support.project import ROOT

S3 = {"path": "s3://landing/events/", "fileformat": "binaryfile", "state": "dynamodb://ingest"}


def test_defaults_on_s3() -> None:
    """A URL, a format and a table of the state suffice; the source's id is the URL without options."""
    options = IngestOptions.parse({**S3, "path": "s3a://landing/events/?region=eu-west-1"})
    assert options.settings == IngestSettings(source="s3://landing/events")
    assert (options.state, options.input.name) == ("dynamodb://ingest", "binaryFile")
    assert (options.new_columns, options.metadata, options.rescued_column) == (None, False, "_rescued")


def test_defaults_on_a_directory(tmp_path: Path) -> None:
    """For a local directory, the state is in the directory, and all files are remembered.

    A file that is moved into the directory keeps its old time.
    """
    options = IngestOptions.parse({"path": f"{tmp_path}/in put", "fileFormat": "binaryFile"})
    assert options.state == f"sqlite://{tmp_path}/in%20put/.commitlog/ingest.sqlite"
    assert options.settings.remember == "everything"
    assert options.settings.source == f"file://{tmp_path}/in%20put"
    with options.opened_table() as table:
        assert f"{table.url}" == options.state


def test_all_settings() -> None:
    """Every setting of a source has its option, with the usual units."""
    options = IngestOptions.parse(
        {
            **S3,
            "source": "events",
            "glob": "2026-*/**",
            "path_glob_filter": "*.bin",
            "hiddenFiles": "true",
            "maxFilesPerTrigger": "10",
            "maxBytesPerTrigger": "1GiB",
            "maxFileAge": "7d",
            "startingFrom": "2026-11-21T00:00:00Z",
            "grace": "2h",
            "remember": "everything",
            "ordered": "true",
            "listLimit": "5000",
            "sliceBytes": "16MiB",
            "changed": "fail",
            "missing": "skip",
            "unreadable": "quarantine",
            "cleanSource": "archive",
            "sourceArchiveDir": "s3a://landing/old/",
            "cleanDelay": "7d",
            "notifications": "sqs://123456789012/arrivals",
            "notifications.region": "eu-west-1",
            "listingInterval": "2h",
            "newcolumns": "rescue",
            "metadata": "true",
            "partitionBytes": "1MiB",
            "sampleFiles": "3",
        }
    )
    assert options.settings == IngestSettings(
        source="events",
        names=PathFilter(glob="2026-*/**", name="*.bin", hidden=True),
        max_files=10,
        max_bytes=2**30,
        max_file_age=7 * 86400.0,
        starting_from=1795219200.0,
        grace=7200.0,
        remember="everything",
        ordered=True,
        list_limit=5000,
        slice_bytes=2**24,
        changed="fail",
        missing="skip",
        unreadable="quarantine",
        clean="archive",
        clean_delay=7 * 86400.0,
        archive="old/",
        listing_interval=7200.0,
    )
    assert options.notifications is not None
    assert str(options.notifications) == "sqs://123456789012/arrivals?region=eu-west-1"
    assert (options.new_columns, options.metadata, options.sample_files) == ("rescue", True, 3)
    assert options.partition_bytes == 2**20


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another time zone of this process than that of most machines."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_a_start_without_a_zone_is_in_utc() -> None:
    """It is the same moment on each machine."""
    options = IngestOptions.parse({**S3, "startingFrom": "2026-11-21"})
    assert options.settings.starting_from == 1795219200.0


def test_the_archive_of_a_directory_is_below_it(tmp_path: Path) -> None:
    """A file is moved within one store."""
    given = {"path": f"{tmp_path}/in", "fileFormat": "binaryFile", "cleanSource": "archive"}
    options = IngestOptions.parse({**given, "sourceArchiveDir": f"{tmp_path}/in/_old/x"})
    assert (options.settings.clean, options.settings.archive) == ("archive", "_old/x/")
    for outside in (f"{tmp_path}/old", f"{tmp_path}/in", f"{tmp_path}/in/.."):
        with pytest.raises(ConfigurationError, match="below the directory that is read"):
            IngestOptions.parse({**given, "sourceArchiveDir": outside})


@pytest.mark.parametrize(
    ("path", "url", "glob"),
    [
        ("s3://landing/events/2026-*/*.json", "s3://landing/events", "2026-*/*.json"),
        ("s3://landing/{a,b}/c?region=r", "s3://landing?region=r", "{a,b}/c"),
        ("/data/in/[ab].json", "/data/in", "[ab].json"),
        ("file:///data/in%5B/*", "/data/in[", "*"),
    ],
)
def test_a_glob_in_the_path(path: str, url: str, glob: str) -> None:
    """A path may contain a glob, as in Spark; quoted characters are not a glob."""
    options = IngestOptions.parse({**S3, "path": path})
    assert (options.url, options.settings.names.glob) == (url, glob)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fileformat": "xml"}, "fileFormat is 'xml'"),
        ({"path": ""}, "no path given"),
        ({"path": "memory://x"}, "gone with its process"),
        ({"state": "memory://x"}, "gone with its process"),
        ({"path": "s3://landing/*", "glob": "*"}, "give one"),
        ({"path": "s3://landing?secret_access_key=HIDDEN"}, "option secretAccessKey"),
        ({"state": "dynamodb://ingest?secret_access_key=HIDDEN"}, "option state.secretAccessKey"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger"),
        ({"grace": "-1h"}, "option grace"),
        ({"startingFrom": "yesterday"}, "startingFrom"),
        ({"startingFrom": "1763600000000"}, "no epoch second"),
        ({"startingFrom": "20261121"}, "no epoch second"),
        ({"startingFrom": "nan"}, "no epoch second"),
        ({"path": "s3://landing-*/events"}, "name of the bucket"),
        ({"changed": "sometimes"}, "changed"),
        ({"changed": "fail"}, "remember"),
        ({"glob": "a[b"}, "glob"),
        ({"newColumns": "add"}, "newColumns"),
        ({"header": "true"}, "unknown option 'header'"),
        ({"rescuedColumn": "rest"}, "newColumns=rescue"),
        ({"maxFilesPerTrigger": "9" * 5000}, "maxFilesPerTrigger"),
        ({"cleanSource": "move"}, "cleanSource"),
        ({"cleanSource": "archive"}, "needs sourceArchiveDir"),
        ({"sourceArchiveDir": "s3://landing/old"}, "goes with cleanSource=archive"),
        ({"cleanSource": "archive", "sourceArchiveDir": "s3://other/old"}, "in s3://landing"),
        ({"cleanSource": "archive", "sourceArchiveDir": "s3://landing"}, "in s3://landing"),
        ({"cleanSource": "archive", "sourceArchiveDir": "/old"}, "in s3://landing"),
        ({"cleanDelay": "soon"}, "option cleanDelay"),
        ({"notifications": "arrivals"}, "queue URL"),
        ({"notifications": "kafka://arrivals"}, "scheme must be sqs"),
        ({"notifications": "sqs://1/arrivals"}, "not the name of a queue"),
        ({"notifications": "sqs://a?secret_access_key=HIDDEN"}, "notifications.secretAccessKey"),
        ({"notifications.region": "eu-west-1"}, "go with option notifications"),
        ({"listingInterval": "1h"}, "goes with option notifications"),
        ({"path": "/data", "notifications": "sqs://arrivals"}, "for s3:// URLs"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, str], said: str) -> None:
    """The error for a wrong value names the option and shows no secret."""
    with pytest.raises(ConfigurationError) as raised:
        IngestOptions.parse({**S3, **given})
    assert said in str(raised.value) and "HIDDEN" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "more", "refused"),
    [
        ("input/state.sqlite", {}, True),
        ("input/a/b/state.sqlite", {}, True),
        ("link/state.sqlite", {}, True),
        ("input/a/../state.sqlite", {"pathGlobFilter": "*.sqlite-wal"}, True),
        ("input/_state.sqlite", {"hiddenFiles": "true"}, True),
        ("input/state.sqlite", {"glob": "*"}, True),
        ("input/_state.sqlite", {}, False),
        ("input/.commitlog/other.sqlite", {"hiddenFiles": "true"}, False),
        ("input/state.sqlite", {"pathGlobFilter": "*.json"}, False),
        ("input/state.sqlite", {"glob": "events/*"}, False),
        ("state.sqlite", {}, False),
        ("input-2/state.sqlite", {}, False),
        ("..input/state.sqlite", {}, False),
    ],
)
def test_a_state_file_in_the_input_is_refused(
    tmp_path: Path, name: str, more: dict[str, str], refused: bool
) -> None:
    """It is refused under any path, because each batch would change it."""
    (tmp_path / "input" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "input")
    options = {"path": f"{tmp_path}/input", "fileFormat": "binaryFile", **more}
    state = {"state": f"sqlite://{tmp_path}/{name}"}
    if refused:
        with pytest.raises(ConfigurationError, match="each batch would make the next one"):
            IngestOptions.parse({**options, **state})
    else:
        assert IngestOptions.parse({**options, **state}).state.endswith(name)


def test_a_format_and_a_state_on_s3_are_required() -> None:
    """Options without a sensible default are required."""
    for missing, said in (("fileformat", "fileFormat is missing"), ("state", "option state is missing")):
        with pytest.raises(ConfigurationError, match=said):
            IngestOptions.parse({name: value for name, value in S3.items() if name != missing})


def test_options_are_documented() -> None:
    """The documentation names every option; those of stores and tables are with outputs."""
    documented = (ROOT / "docs" / "ingest.md").read_text()
    reach = {*connection_names("state"), *queue_names("notifications")}
    reach -= {"path", "state", "notifications"}
    names = {
        *ingest_options._OWN,
        *(name for kind in INPUT_FORMATS.values() for name in kind.options),
    } - reach
    assert [name for name in sorted(names) if f"`{name}`" not in documented] == []


def test_secrets_are_not_shown() -> None:
    """Options can be pickled with their secrets, and do not show them."""
    options = IngestOptions.parse(
        {**S3, "secretAccessKey": "HIDDEN", "state.secretAccessKey": "HIDDEN", "accessKeyId": "HIDDEN"}
    )
    assert "HIDDEN" not in f"{options!r} {options}"
    copy = pickle.loads(pickle.dumps(options))
    assert copy.connection == options.connection and copy.settings == options.settings
