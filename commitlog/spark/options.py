"""The options of the data source, checked before anything is touched.

Imports errors, urls, and the names of modes and codecs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from attrs import field, frozen

from commitlog.errors import ConfigurationError
from commitlog.outputs import Mode
from commitlog.spark.parquet import COMPRESSIONS
from commitlog.urls import SECRET_OPTIONS, SERVICE_OPTIONS, Url, parse_store_url, parse_table_url

__all__ = ["ReadOptions", "WriteOptions"]

_SERVICE = SERVICE_OPTIONS | SECRET_OPTIONS
_TABLE = {f"table.{name}": name for name in sorted(_SERVICE - {"addressing_style"})}

# Spark lowers the names of options; the values are how the documentation spells them.
_READ = {name: name for name in ("path", "commit", "table", *sorted(_SERVICE), *_TABLE)}
_WRITE = {
    **_READ,
    "jobid": "jobId",
    "ifexists": "ifExists",
    "compression": "compression",
    "partitionby": "partitionBy",
}


@frozen(kw_only=True)
class ReadOptions:
    """Where an output is.

    Attributes:
        url: of the directory that is the output.
        connection: further arguments of `commitlog.connect`. There may be credentials among them, so
            they are never shown.
    """

    url: str
    connection: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = _known(options, _READ)
        return cls(url=_url(given), connection=_connection(given))


@frozen(kw_only=True)
class WriteOptions(ReadOptions):
    """Where an output is, and what to do to it.

    Attributes:
        job_id: what is written under one job id is committed at most once; None for a new one.
        if_exists: ``append``, or ``error`` if an output that has data is to be left alone.
        compression: one of `COMPRESSIONS`.
        partition_by: names of the columns that become directories.
    """

    job_id: str | None
    if_exists: Mode
    compression: str
    partition_by: tuple[str, ...]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = _known(options, _WRITE)
        names = given.get("partitionby", "").split(",")
        return cls(
            url=_url(given),
            connection=_connection(given),
            job_id=given.get("jobid"),
            if_exists=cast(Mode, _choice(given, "ifexists", get_args(Mode))),
            compression=_choice(given, "compression", tuple(COMPRESSIONS)),
            partition_by=tuple(name.strip() for name in names if name.strip()),
        )


def _known(options: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigurationError(
            f"unknown option {unknown[0]!r}; known: {', '.join(sorted(known.values(), key=str.lower))}"
        )
    return given


def _choice(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, allowed[0]).lower()
    if value not in allowed:
        raise ConfigurationError(f"option {_WRITE[name]} is {value!r}; known: {', '.join(allowed)}")
    return value


def _url(given: Mapping[str, str]) -> str:
    url = given.get("path")
    if not url:
        raise ConfigurationError("no place given: name the output's URL in save(…) or load(…)")
    parsed = parse_store_url(url)
    _without_secrets("path", parsed)
    if parsed.scheme == "memory":
        raise ConfigurationError("a memory:// store is gone with its process, and Spark has many")
    return url


def _connection(given: Mapping[str, str]) -> dict[str, str | Url]:
    found: dict[str, str | Url] = {
        name: given[name] for name in ("commit", *sorted(_SERVICE)) if name in given
    }
    of_table = {name: given[option] for option, name in _TABLE.items() if option in given}
    if "table" in given:
        table = parse_table_url(given["table"])
        _without_secrets("table", table)
        found["table"] = table.with_options(of_table)
    elif of_table:
        raise ConfigurationError(f"options {', '.join(_TABLE)} go with option table, which is missing")
    return found


def _without_secrets(option: str, url: Url) -> None:
    # Spark shows the values of these options in plans and in its event log.
    leaked = sorted(SECRET_OPTIONS & set(url.options))
    if leaked:
        name = leaked[0] if option == "path" else f"{option}.{leaked[0]}"
        raise ConfigurationError(
            f"the URL of option {option} must not bear {leaked[0]}, for Spark prints it:"
            f" give it as option {name}"
        )
