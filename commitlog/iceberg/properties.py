"""The store that the properties of a catalog name.

This is a module of its own because everything else in the package takes the store as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyiceberg.catalog import URI
from pyiceberg.exceptions import NoSuchPropertyException
from pyiceberg.io import (
    AWS_ACCESS_KEY_ID,
    AWS_REGION,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    S3_ACCESS_KEY_ID,
    S3_ENDPOINT,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)

from commitlog.commit import ProbeReport
from commitlog.connect import connect
from commitlog.errors import ConfigurationError, CorruptRecord
from commitlog.urls import parse_store_url

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore

__all__ = ["open_records"]

#: Properties for `connect`, apart from those of pyiceberg.
_TABLE, _COMMIT, _PROBE_REPORT = "commitlog.table", "commitlog.commit", "commitlog.probe-report"

#: Options of an S3 URL, and the properties of pyiceberg that have them, the first one first.
_S3_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "endpoint_url": (S3_ENDPOINT,),
        "region": (S3_REGION, AWS_REGION),
        # Older versions of pyiceberg have no constants for these.
        "profile": ("s3.profile-name", "client.profile-name"),
        "access_key_id": (S3_ACCESS_KEY_ID, AWS_ACCESS_KEY_ID),
        "secret_access_key": (S3_SECRET_ACCESS_KEY, AWS_SECRET_ACCESS_KEY),
        "session_token": (S3_SESSION_TOKEN, AWS_SESSION_TOKEN),
    }
)


def open_records(properties: Mapping[str, str]) -> ConditionalStore:
    """Open the store of a catalog's records; see `commitlog.iceberg.Catalog` for the properties.

    Raises:
        NoSuchPropertyException: there is no ``uri``.
        ConfigurationError: a URL or an option is wrong, or the file of the probe report.
    """
    url = properties.get(URI)
    if not url:
        raise NoSuchPropertyException(
            "uri is required: the directory of the catalog, such as s3://bucket/catalog"
        )
    place = parse_store_url(url)
    options: dict[str, str | None] = {}
    if place.scheme == "s3":
        for option, names in _S3_OPTIONS.items():
            if option not in place.options:
                options[option] = next((properties[name] for name in names if name in properties), None)
    return connect(
        place.with_options(options),
        table=properties.get(_TABLE),
        commit=properties.get(_COMMIT, "auto"),
        probe_report=_read_probe_report(properties.get(_PROBE_REPORT)),
    )


def _read_probe_report(file: str | None) -> ProbeReport | None:
    if file is None:
        return None
    try:
        return ProbeReport.from_json(Path(file).read_text())
    except (CorruptRecord, OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{_PROBE_REPORT} {file!r}: {reason}") from error
