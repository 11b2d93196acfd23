"""URLs of stores and tables: parsing, and display without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from attrs import evolve, field, frozen

from commitlog._util.frozen_map import FrozenMap, frozen_map
from commitlog.errors import ConfigurationError, NotSupported
from commitlog.paths import check_prefix

__all__ = [
    "OBJECT_OPTIONS",
    "SECRET_OPTIONS",
    "SERVICE_OPTIONS",
    "Url",
    "bucket_of",
    "check_name",
    "parse_queue_url",
    "parse_store_url",
    "parse_table_url",
]

#: Secret options, which must not appear in a message, a log line, a plan or a stored record.
SECRET_OPTIONS = frozenset({"access_key_id", "secret_access_key", "session_token"})

#: Options that an S3 or DynamoDB URL accepts in its query, in addition to the secret ones.
SERVICE_OPTIONS = frozenset({"endpoint_url", "region", "profile", "addressing_style", "verify"})

#: Options of an S3 URL that say how objects are stored; see `commitlog.stores.s3_options`.
OBJECT_OPTIONS = frozenset(
    {
        "acl",
        "bucket_key",
        "checksum",
        "dialect",
        "request_payer",
        "server_side_encryption",
        "sse_kms_key_id",
        "storage_class",
        "tagging",
    }
)

_OPTIONS = {
    "s3": SERVICE_OPTIONS | SECRET_OPTIONS | OBJECT_OPTIONS,
    "dynamodb": (SERVICE_OPTIONS | SECRET_OPTIONS) - {"addressing_style"},
    "sqs": (SERVICE_OPTIONS | SECRET_OPTIONS) - {"addressing_style"},
}

#: Features of S3 that users may ask for by these names, with the reason why they are not supported.
_REFUSED_OPTIONS = {
    **dict.fromkeys(
        ("sse_customer_algorithm", "sse_customer_key", "sse_customer_key_md5"),
        "keys of the customer (SSE-C) are not supported, since each read needs the key as well; use"
        " server_side_encryption=aws:kms",
    ),
    **dict.fromkeys(
        ("object_lock_legal_hold_status", "object_lock_mode", "object_lock_retain_until_date"),
        "the lock of a single object is not supported; give the bucket a default retention",
    ),
    **dict.fromkeys(
        ("grant_full_control", "grant_read", "grant_read_acp", "grant_write_acp"),
        "grants are not supported; use acl or a policy of the bucket",
    ),
    "sse_kms_encryption_context": "an encryption context is not supported",
    "checksum_algorithm": "other checksums than MD5 are not supported; use checksum=md5",
}

#: Schemes of known services for which there is no store or table.
_NOT_SUPPORTED = {
    **dict.fromkeys(("abfs", "abfss", "adl", "az", "azure", "wasb", "wasbs"), "Azure Storage"),
    **dict.fromkeys(("gs", "gcs"), "Google Cloud Storage"),
    **dict.fromkeys(("hdfs", "webhdfs", "swebhdfs", "viewfs", "har"), "HDFS"),
    **dict.fromkeys(("ofs", "o3fs"), "Apache Ozone"),
    **dict.fromkeys(("cos", "cosn"), "Tencent Cloud Object Storage"),
    **dict.fromkeys(("oss", "jindo"), "Alibaba Cloud Object Storage"),
    "obs": "Huawei Object Storage",
    "oci": "Oracle Object Storage",
    "swift": "OpenStack Swift",
    "dbfs": "the file system of Databricks",
}

_NO_OPTIONS = FrozenMap()
# Our schemes are recognized without slashes too: otherwise "s3:bucket?…" would name a directory. Other
# schemes are recognized before one slash, because Hadoop accepts "hdfs:/dir".
_SCHEME = re.compile(
    r"([a-z][a-z0-9+.-]*(?=://)|file|s3a?|memory|sqlite|dynamo(?:db)?"
    rf"|(?:{'|'.join(sorted(_NOT_SUPPORTED))})(?=:/)):",
    re.IGNORECASE,
)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_QUEUE = re.compile(r"([0-9]{12}/)?[A-Za-z0-9_-]{1,80}")
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
# Control characters and surrogates.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@frozen(kw_only=True)
class Url:
    """A parsed URL.

    Attributes:
        scheme: ``s3``, ``file``, ``memory``, ``dynamodb``, ``sqlite`` or ``sqs``.
        name: bucket, table, queue or memory name; for ``file`` and ``sqlite`` the absolute path.
        prefix: the part after the bucket, without slashes at its ends.
        options: the query, as given.
    """

    scheme: str
    name: str
    prefix: str = ""
    options: Mapping[str, str] = field(default=_NO_OPTIONS, converter=frozen_map, repr=False, hash=False)

    def __str__(self) -> str:
        """Return the URL without its secret options."""
        location = quote(self.name) + (f"/{quote(self.prefix)}" if self.prefix else "")
        shown = {k: v for k, v in sorted(self.options.items()) if k not in SECRET_OPTIONS}
        return f"{self.scheme}://{location}" + (f"?{urlencode(shown, safe=':/')}" if shown else "")

    def with_options(self, options: Mapping[str, str | None]) -> Url:
        """Return the URL with those `options` that are not None in place of its own.

        Raises `ConfigurationError` for an unknown option, `NotSupported` for a feature of S3 that is not
        supported.
        """
        given = {name: value for name, value in options.items() if value is not None}
        # For a store that takes no options, `open_store` refuses the known ones.
        _only(given, _OPTIONS.get(self.scheme, _OPTIONS["s3"]), self.scheme)
        if "endpoint_url" in given:
            check_endpoint(given["endpoint_url"])
        return evolve(self, options={**self.options, **given})


def parse_store_url(url: str) -> Url:
    """Parse ``s3://bucket/prefix``, ``file:///dir``, ``memory://name`` or the path of a directory.

    ``s3a://`` means ``s3://``; ``file:/dir``, the form of Hadoop and Spark, means ``file:///dir``.

    Raises:
        ConfigurationError: it has none of these forms, or an unknown option.
        NotSupported: an option asks for a feature of S3 that is not supported.
        InvalidPath: no object can be stored under such a prefix.

    >>> str(parse_store_url("s3://bucket/a b/?region=eu-west-1&secret_access_key=x"))
    's3://bucket/a%20b?region=eu-west-1'
    >>> parse_store_url("file:///data/lake").name
    '/data/lake'
    >>> parse_store_url("ftp://host/x")
    Traceback (most recent call last):
    commitlog.errors.ConfigurationError: store URL 'ftp://…': scheme must be s3, file or memory
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"a store URL is a str, not {type(url).__name__}")
    if not _SCHEME.match(url):
        if "://" in url and not url.startswith(("/", ".", "~")):  # such as a URL after a blank
            raise ConfigurationError("store URL: the text before '://' is not a scheme; remove it")
        return _directory("file", os.path.expanduser(check_name("file", url)))
    scheme, rest, options = _split(url, "store", ("s3", "s3a", "file", "memory"))
    if scheme == "file":
        _only(options, frozenset(), "file")
        return _absolute("file", rest)
    name, _, prefix = rest.partition("/")
    prefix = prefix.removesuffix("/")
    if prefix:
        check_prefix(prefix + "/")
    if scheme == "memory":
        _only(options, frozenset(), "memory")
        return Url(scheme="memory", name=check_name("memory", name), prefix=prefix)
    if not _BUCKET.fullmatch(name):
        raise ConfigurationError(f"store URL 's3://{name}': not the name of a bucket")
    _only(options, _OPTIONS["s3"], "s3")
    return Url(scheme="s3", name=name, prefix=prefix, options=options)


def bucket_of(url: str) -> str:
    """Return the URL of a store's bucket: only its name and endpoint.

    >>> bucket_of("s3://bucket/a/b?region=eu-west-1&endpoint_url=http://host:9")
    's3://bucket?endpoint_url=http://host:9'
    """
    parsed = parse_store_url(url)
    endpoint = {k: v.rstrip("/") for k, v in parsed.options.items() if k == "endpoint_url"}
    return str(evolve(parsed, prefix="", options=endpoint))


def parse_table_url(url: str) -> Url:
    """Parse ``dynamodb://table``, ``sqlite:///file`` or ``memory://name``.

    >>> parse_table_url("dynamodb://commits?endpoint_url=http://127.0.0.1:4566").options["endpoint_url"]
    'http://127.0.0.1:4566'
    >>> parse_table_url("sqlite:///data/commits.db").name
    '/data/commits.db'
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"a table URL is a str, not {type(url).__name__}")
    scheme, rest, options = _split(url, "table", ("dynamodb", "dynamo", "sqlite", "memory"))
    if scheme == "sqlite":
        _only(options, frozenset(), "sqlite")
        return _absolute("sqlite", rest)
    name = rest.strip("/")
    _without_credentials("table", scheme, name)
    if scheme == "memory":
        _only(options, frozenset(), "memory")
        return Url(scheme="memory", name=check_name("memory", name))
    if not _TABLE.fullmatch(name):
        raise ConfigurationError(f"table URL 'dynamodb://{name}': not the name of a table")
    _only(options, _OPTIONS["dynamodb"], "dynamodb")
    return Url(scheme="dynamodb", name=name, options=options)


def parse_queue_url(url: str) -> Url:
    """Parse ``sqs://queue``, or ``sqs://account/queue`` for a queue of another account.

    >>> parse_queue_url("sqs://arrivals?region=eu-west-1").name
    'arrivals'
    """
    _, rest, options = _split(url, "queue", ("sqs",))
    name = rest.strip("/")
    if not _QUEUE.fullmatch(name):
        raise ConfigurationError(f"queue URL 'sqs://{name}': not the name of a queue")
    _only(options, _OPTIONS["sqs"], "sqs")
    return Url(scheme="sqs", name=name, options=options)


def _split(url: str, what: str, schemes: tuple[str, ...]) -> tuple[str, str, dict[str, str]]:
    found = _SCHEME.match(url)
    if found is None:
        known = {
            "store": "'s3://bucket'",
            "table": "'dynamodb://name' or 'sqlite:///file'",
            "queue": "'sqs://name'",
        }[what]
        raise ConfigurationError(f"{what} URL: it has to begin with a scheme, as in {known}")
    scheme, rest = found[1].lower(), url[found.end() :]
    if scheme not in schemes:
        raise _unknown_scheme(what, scheme)  # first: its other parts may have another meaning
    if rest.startswith("//"):
        rest = rest[2:]
    elif scheme != "file":
        raise ConfigurationError(f"{what} URL: write '{scheme}://', with two slashes")
    # urlsplit would cut a key at '#', which a key may contain.
    location, _, query = rest.partition("?")
    try:
        location = unquote(location, errors="strict")
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise ConfigurationError(
            f"{what} URL '{scheme}://…': percent-encode UTF-8, and write its query as name=value"
        ) from None
    _without_credentials(what, scheme, location)
    options = dict(pairs)
    if len(options) != len(pairs):
        raise ConfigurationError(f"{what} URL '{scheme}://…' gives an option twice")
    endpoint = options.get("endpoint_url")
    if endpoint is not None:
        check_endpoint(endpoint)
    return scheme, location, options


def _unknown_scheme(what: str, scheme: str) -> ConfigurationError:
    name = f"{what} URL '{scheme}://…'"
    known = {"store": "s3, file or memory", "table": "dynamodb, sqlite or memory", "queue": "sqs"}[what]
    if scheme in _NOT_SUPPORTED:
        service = _NOT_SUPPORTED[scheme]
        return ConfigurationError(f"{name}: {service} is not supported; scheme must be {known}")
    if scheme == "s3n":
        return ConfigurationError(f"{name}: write s3://")
    other = "; the commands `commitlog fs` take URLs of namespaces" if scheme == "commitlog" else ""
    return ConfigurationError(f"{name}: scheme must be {known}{other}")


def _without_credentials(what: str, scheme: str, location: str) -> None:
    if "@" in location.split("/", 1)[0]:
        raise ConfigurationError(f"{what} URL '{scheme}://…' has credentials before '@': use options")


def check_endpoint(endpoint: str) -> str:
    """Return `endpoint`, which must be an http or https URL without credentials, query or fragment."""
    try:
        parts = urlsplit(endpoint)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        right = False
    # urlsplit drops line ends and tabs silently
    if not right or not endpoint.isprintable() or " " in endpoint:
        raise ConfigurationError("endpoint_url must be http://host[:port] or https://host[:port]")
    # Search everywhere: a password may contain a slash, and the host would then seem to end there.
    if "@" in endpoint or "?" in endpoint or "#" in endpoint:
        raise ConfigurationError("endpoint_url must not contain credentials, a query or a fragment")
    return endpoint


def _only(options: Mapping[str, str], known: frozenset[str], scheme: str) -> None:
    unknown = sorted(set(options) - known)
    if unknown and scheme == "s3" and unknown[0] in _REFUSED_OPTIONS:
        raise NotSupported(f"s3 URL: option {unknown[0]!r}: {_REFUSED_OPTIONS[unknown[0]]}")
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        raise ConfigurationError(f"{scheme} URL: unknown option {unknown[0]!r}; known: {allowed}")
    for name, value in options.items():
        if _UNPRINTABLE.search(value):
            raise ConfigurationError(
                f"{scheme} URL: option {name} has control characters or is not Unicode"
            )


def _absolute(scheme: str, path: str) -> Url:
    if not path.startswith("/"):
        raise ConfigurationError(f"{scheme} URL: write {scheme}:///absolute/path")
    return _directory(scheme, path)


def _directory(scheme: str, path: str) -> Url:
    if not path:
        raise ConfigurationError(f"{scheme} URL: the path is empty")
    # POSIX allows a special meaning for exactly two leading slashes; Linux has none
    name = "/" + os.path.abspath(check_name(scheme, path)).lstrip("/")
    return Url(scheme=scheme, name=name)


def check_name(scheme: str, name: str) -> str:
    """Return `name`, which must be a valid and printable file name."""
    if _UNPRINTABLE.search(name):
        raise ConfigurationError(f"{scheme} URL: the name has control characters or is not Unicode")
    return name
