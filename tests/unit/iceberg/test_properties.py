"""The store that the properties of a catalog name."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog.commit.probe_report import Kind
from commitlog.errors import ConfigurationError
from commitlog.iceberg.properties import open_records
from support.commit import proven


def test_options_of_s3_are_those_of_pyiceberg() -> None:
    """The URL's own options take precedence over ``s3.…``, and these over ``client.…``."""
    properties = {
        "uri": "s3://bucket/a?region=eu-west-1",
        "s3.endpoint": "http://localhost:1",
        "s3.region": "us-east-1",
        "client.access-key-id": "key",
        "client.secret-access-key": "secret",
    }
    with open_records(properties) as store:
        assert store.url.startswith("s3://bucket/a?")
        assert "region=eu-west-1" in store.url and "endpoint_url=http://localhost:1" in store.url
        assert "secret" not in store.url


def test_a_probe_report_is_read_from_a_file(tmp_path: Path) -> None:
    """A file that is not there, or is no report, is an error that names the property."""
    file = tmp_path / "probe.json"
    properties = {"uri": "memory://iceberg-probe", "commitlog.probe-report": str(file)}
    with pytest.raises(ConfigurationError, match=r"commitlog\.probe-report .*No such file"):
        open_records(properties)
    file.write_text("{}")
    with pytest.raises(ConfigurationError, match="not a probe report"):
        open_records(properties)
    file.write_text(proven(*Kind, url="memory://iceberg-probe").to_json())
    with open_records(properties) as store:
        assert all(store.probe_report.proves(kind) for kind in Kind)
