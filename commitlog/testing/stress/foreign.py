"""A client of the Rust crate ``object_store``, through obstore, as a writer of a stress run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import ObjectData, PutResult
from commitlog.urls import Url

__all__ = ["ForeignStore"]

T = TypeVar("T")

#: Texts in its errors: the server refused the request; a HEAD returned no etag.
_STATUS = "Server returned non-2xx"
_NO_ETAG = ":  does not match"

_COPIED = ("endpoint_url", "region", "access_key_id", "secret_access_key", "session_token")


class ForeignStore:
    """obstore in its ``dynamo:`` mode, with the methods of `ConditionalStore` that it supports.

    Args:
        url: ``s3://bucket/prefix`` with an ``endpoint_url``, where obstore expects DynamoDB too.
        table: name of the table of leases.
        timeout: length of a lease in seconds.

    The retries of obstore are off: a put that is repeated after a lost answer could overwrite the object
    of a later writer.

    A write raises `AlreadyExists` or `PreconditionFailed` only if obstore refused it because of its own
    HEAD. Every other error raises `OutcomeUnknown`: no error of obstore proves that nothing was sent.
    Two kinds of refusal are among them: one because of a status of the server, which may have other
    causes; and one because of a HEAD without an etag, which obstore takes for that of another object.

    Raises `ConfigurationError` if obstore is not installed.
    """

    def __init__(self, url: Url, *, table: str, timeout: float) -> None:
        try:
            import obstore
        except ImportError as error:
            raise ConfigurationError(
                "foreign writers need obstore: pip install obstore==0.8.2"
            ) from error
        self._obstore: Any = obstore
        self._prefix = f"{url.prefix}/" if url.prefix else ""
        commit = f"dynamo:{table}:{round(timeout * 1000)}"
        config: Any = {name: url.options[name] for name in _COPIED if name in url.options}
        config |= {"conditional_put": commit, "copy_if_not_exists": commit}
        self._store = obstore.store.S3Store(
            url.name,
            config=config,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def put(self, path: str, data: bytes, *, metadata: Mapping[str, str]) -> PutResult:
        """Put unconditionally."""
        return self._put(path, data, metadata, "overwrite")

    def put_if_absent(self, path: str, data: bytes, *, metadata: Mapping[str, str]) -> PutResult:
        """Create the object if it does not exist."""
        return self._put(path, data, metadata, "create")

    def put_if_match(
        self, path: str, data: bytes, *, etag: str, metadata: Mapping[str, str]
    ) -> PutResult:
        """Replace the object if its etag is `etag`."""
        return self._put(path, data, metadata, {"e_tag": etag})

    def copy_if_absent(self, source: str, target: str) -> PutResult:
        """Copy if the target does not exist. The result has the etag of the source: obstore has none."""
        etag = self.get(source).etag
        self._write(
            lambda: self._obstore.copy(
                self._store, self._prefix + source, self._prefix + target, overwrite=False
            )
        )
        return PutResult(path=target, etag=etag)

    def get(self, path: str) -> ObjectData:
        """Return the object."""
        try:
            found = self._obstore.get(self._store, self._prefix + path)
            data = bytes(found.bytes())
        except FileNotFoundError as error:
            raise NotFound(f"no object at {path!r}") from error
        except self._obstore.exceptions.BaseError as error:
            raise Unavailable(f"obstore could not read {path!r}") from error
        if not found.meta["e_tag"]:
            raise Unavailable(f"the answer has no etag of {path!r}")
        modified: datetime = found.meta["last_modified"]
        return ObjectData(
            path=path,
            size=found.meta["size"],
            etag=found.meta["e_tag"],
            last_modified=modified.astimezone(UTC).timestamp(),
            metadata={str(name).lower(): value for name, value in found.attributes.items()},
            data=data,
        )

    def close(self) -> None:
        """Do nothing: the client closes when its process ends."""

    def _put(self, path: str, data: bytes, metadata: Mapping[str, str], mode: Any) -> PutResult:
        result = self._write(
            lambda: self._obstore.put(
                self._store,
                self._prefix + path,
                data,
                attributes=dict(metadata),
                mode=mode,
                use_multipart=False,
            )
        )
        return PutResult(path=path, etag=result["e_tag"])

    def _write(self, call: Callable[[], T]) -> T:
        exceptions = self._obstore.exceptions
        try:
            return call()
        except exceptions.AlreadyExistsError as error:
            if _STATUS not in str(error):
                raise AlreadyExists("obstore found an object") from error
            raise OutcomeUnknown("obstore was refused") from error
        except exceptions.PreconditionError as error:
            if _STATUS not in str(error) and _NO_ETAG not in str(error):
                raise PreconditionFailed("obstore found another object, or none") from error
            raise OutcomeUnknown("obstore was refused, or found no etag") from error
        except (exceptions.BaseError, FileNotFoundError) as error:
            raise OutcomeUnknown("obstore gave up") from error
