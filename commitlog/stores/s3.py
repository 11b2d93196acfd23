"""Objects in a bucket of S3, or of a server that speaks its protocol.

Requests are signed and sent by `commitlog.aws`; hidden retries there are none. Whether a server honours
the conditions that it is sent has to be probed: some answer 200 and ignore them.
Imports aws, the ports and the ground floor.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TypeVar
from xml.etree.ElementTree import Element

from attrs import asdict

from commitlog.aws import (
    AwsOptions,
    AwsSession,
    Boto3Session,
    Caller,
    Response,
    common_fault,
    encode_path,
)
from commitlog.backoff import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.errors import (
    CommitError,
    ConfigurationError,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.paths import check_path, check_prefix
from commitlog.stores.api import (
    NONCE,
    Body,
    Capabilities,
    Condition,
    Fence,
    IfAbsent,
    IfMatch,
    ObjectData,
    ObjectStore,
    Observation,
    Operation,
    Page,
    Pending,
    PutResult,
    Staged,
    StagedInfo,
    StageWriter,
    chunks,
    split_body,
)
from commitlog.stores.arguments import check_metadata, check_page, check_range
from commitlog.stores.s3_bucket import LOOK, Bucket, Request, content_md5, has_code, is_marked
from commitlog.stores.s3_records import (
    META,
    next_upload,
    no_etag,
    object_data,
    object_info,
    page,
    put_result,
    range_data,
    text_of,
    uploads,
)
from commitlog.stores.s3_stage import S3StageWriter, abort_upload
from commitlog.stores.s3_xml import complete_body, delete_body, http_date, parse, refused_rows
from commitlog.urls import Url, parse_store_url

__all__ = ["S3Store"]

T = TypeVar("T")

_EMPTY: Mapping[str, str] = MappingProxyType({})
_BOTH = frozenset({IfAbsent, IfMatch})
_MIB = 1024 * 1024
_BULK = 1000
_TRIES = 3
#: What the bodies begin with that tell of success where a status of 200 does not.
_PUBLISHED = frozenset({"CompleteMultipartUploadResult", "CopyObjectResult"})


class S3Store(ObjectStore):
    """A bucket, or what lies below a prefix of it. Thread-safe.

    Args:
        url: ``s3://bucket/prefix?endpoint_url=…``.
        options: how to reach the bucket, instead of what the URL's query says.
        session: a boto3 session for credentials, region and profile that the options leave open.
        clock: dates signatures and waits between repeated reads; the system's by default.
        backoff: how often reads, and uploads that nobody sees, are repeated.
        part_size: bytes of the first parts of a large upload, at least 5 MiB.
        put_limit: bytes of the largest body that is put in one request.
        parallel_parts: parts of one upload that are under way at once.

    Raises `ConfigurationError` if it cannot be found out where the bucket is, or who asks. Nothing is
    sent before the first call.

    Not guaranteed: that HEAD tells a missing bucket from a missing object (its answer has no body), and
    that a copy of more than 5 GiB works (the service refuses it).
    """

    capabilities = Capabilities(
        conditions=MappingProxyType(
            {
                Operation.PUT: _BOTH,
                Operation.COPY: _BOTH,
                Operation.PUBLISH: _BOTH,
                Operation.DELETE: frozenset({IfMatch}),
            }
        ),
        enforced=False,
        fences=True,
    )

    def __init__(
        self,
        url: str | Url,
        *,
        options: AwsOptions | None = None,
        session: Boto3Session | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        part_size: int = 8 * _MIB,
        put_limit: int = 16 * _MIB,
        parallel_parts: int = 4,
    ) -> None:
        parsed = parse_store_url(url) if isinstance(url, str) else url
        if parsed.scheme != "s3":
            raise ConfigurationError(f"{parsed} is not an s3:// URL")
        if part_size < 5 * _MIB:
            raise ConfigurationError(f"part_size {part_size}: S3 takes no parts below 5 MiB")
        if put_limit < 0 or parallel_parts < 1:
            raise ConfigurationError("put_limit must be 0 or more, parallel_parts 1 or more")
        self.url = str(parsed)
        self._name = parsed.name
        self._prefix = f"{parsed.prefix}/" if parsed.prefix else ""
        self._part_size = part_size
        self._put_limit = put_limit
        self._parallel_parts = parallel_parts
        clock = SystemClock() if clock is None else clock
        aws = AwsSession(AwsOptions.from_url(parsed) if options is None else options, session)
        caller = Caller(aws, "s3", aws.endpoint("s3", bucket=parsed.name), clock=clock)
        self._bucket = Bucket(parsed.name, caller, clock=clock, backoff=backoff or Backoff())

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def key(self, path: str) -> str:
        """Return `path` below the prefix that was opened."""
        return check_path(self._prefix + check_path(path))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._bucket.close()

    # reads

    def begin_head(self, path: str) -> Pending[Observation]:
        """See `ObjectStore.begin_head`. A missing bucket looks like a missing object.

        The answer to a HEAD has no body. So a 404 counts if the store has marked it as its own, and else
        if a GET, whose answer has an error code, says the same.
        """
        key = self.key(path)
        request = Request("HEAD", key)
        pending = self._bucket.fetch(request, accept=_is_404, flaw=no_etag)

        def observation() -> Observation:
            response = pending()
            for _ in range(_TRIES):
                if response.status != 404 or is_marked(response) or has_code(response):
                    break
                response = self._bucket.fetch(
                    Request("GET", key, headers={"range": "bytes=0-0"}), accept=_is_settled, flaw=no_etag
                )()
                if response.status != 404:
                    response = self._bucket.fetch(request, accept=_is_404, flaw=no_etag)()
            else:
                raise Unavailable(
                    f"{self._bucket.what(request)}: HEAD says each time that there is no object, and "
                    "GET that there is one. Something between here and the store answers in its place"
                )
            info = None if response.status == 404 else object_info(path, response.headers)
            return Observation(info=info, store_time=http_date(response.headers.get("date")))

        return observation

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""
        key = self.key(path)
        check_range(start, end)
        if start == end:
            return self._nothing_of(path)
        whole = start == 0 and end is None
        last = "" if end is None else str(end - 1)
        headers = _EMPTY if whole else {"range": f"bytes={start}-{last}"}
        request = Request("GET", key, headers=headers)
        for _ in range(_TRIES):
            response = self._bucket.fetch(request, accept=_is_416, flaw=no_etag)()
            if response.status == 206:
                return range_data(path, response.headers, response.body, start, end)
            if response.status != 416:
                # Sliced, for a server that does not know ranges.
                data = response.body if whole else response.body[start:end]
                return object_data(path, response.headers, data, len(response.body))
            nothing = self._nothing_of(path)
            if nothing.size <= start:
                return nothing
            # It was replaced by a larger one since.
        raise Unavailable(
            f"{self._bucket.what(request)}: there is no such range, says the store each time"
        )

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`. Leaves out empty objects ``a/``, which stand for directories."""
        check_prefix(prefix)
        check_page(delimiter, limit)
        query = {"list-type": "2", "prefix": self._prefix + prefix, "max-keys": str(limit)}
        query["encoding-type"] = "url"
        if delimiter:
            query["delimiter"] = delimiter
        if token is not None:
            query["continuation-token"] = token
        elif start_after:
            query["start-after"] = self._prefix + start_after
        request = Request("GET", query=query)
        found = self._read(request, "ListBucketResult", lambda answer: page(answer, self._prefix))
        if found.next_token is not None and found.next_token == token:
            raise self._endless(request)
        return found

    # mutations

    def put(
        self,
        path: str,
        body: Body,
        *,
        condition: Condition | None = None,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
        fence: Fence | None = None,
    ) -> PutResult:
        """See `ObjectStore.put`."""
        key = self.key(path)
        headers = _headers(check_metadata(metadata), content_type)
        small, rest = split_body(body, self._put_limit)
        if rest is None:
            request = Request("PUT", key, headers=headers, body=small, condition=condition, fence=fence)
            return self._written(request, self._bucket.send(request)(), path)
        with self.begin_stage(path, metadata=metadata, content_type=content_type) as writer:
            writer.write(small)
            for chunk in chunks(rest):
                writer.write(chunk)
            staged = writer.finish()
        try:
            return self.publish(staged, condition=condition, fence=fence)
        except OutcomeUnknown:
            raise
        except CommitError:
            with suppress(CommitError):  # nobody sees it, and `list_staged` finds it
                self.abort(staged)
            raise

    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        fence: Fence | None = None,
    ) -> PutResult:
        """See `ObjectStore.copy`."""
        headers = {"x-amz-copy-source": f"/{self._name}/{encode_path(self.key(source))}"}
        request = Request("PUT", self.key(target), headers=headers, condition=condition, fence=fence)
        try:
            response = self._bucket.send(request)()
        except NotFound as error:
            if type(error) is not NotFound:
                raise
            # S3 says "no such key" of either object.
            if isinstance(condition, IfMatch) and self.begin_head(source)().info is not None:
                raise PreconditionFailed(
                    f"{target!r} should have etag {condition.etag}, but there is no object"
                ) from error
            raise NotFound(f"no object at {source!r} in {self.url} to copy") from error
        return self._published(request, response, target)

    def delete(self, path: str, *, condition: IfMatch | None = None, fence: Fence | None = None) -> None:
        """See `ObjectStore.delete`. In a bucket with versions the older ones stay."""
        request = Request("DELETE", self.key(path), condition=condition, fence=fence)
        try:
            self._bucket.send(request)()
        except NotFound as error:
            if type(error) is not NotFound:
                raise

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`. One request for each thousand, where the server offers it."""
        keys = [self.key(path) for path in paths]
        failures: dict[str, CommitError] = {}
        for start in range(0, len(keys), _BULK):
            failures.update(self._delete_bulk(keys[start : start + _BULK]))
        return {self._path(key): error for key, error in failures.items()}

    # uploads

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """See `ObjectStore.begin_stage`. The upload is there from now on.

        If the store's first answer was lost, there is an empty one besides, which `list_staged` shows.
        """
        key = self.key(path)
        kept = check_metadata(metadata)
        nonce = kept.setdefault(NONCE, uuid.uuid4().hex)
        request = Request("POST", key, {"uploads": ""}, _headers(kept, content_type))
        upload_id = self._read(
            request, "InitiateMultipartUploadResult", lambda answer: text_of(answer, "UploadId")
        )
        return S3StageWriter(
            self._bucket,
            key=key,
            path=path,
            upload_id=upload_id,
            nonce=nonce,
            part_size=self._part_size,
            parallel=self._parallel_parts,
        )

    def publish(
        self, staged: Staged, *, condition: Condition | None = None, fence: Fence | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        request = Request(
            "POST",
            self.key(staged.path),
            {"uploadId": staged.upload_id},
            body=complete_body(staged.parts),
            condition=condition,
            fence=fence,
        )
        return self._published(request, self._bucket.send(request)(), staged.path)

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`. Repeated as needed."""
        abort_upload(self._bucket, self.key(staged.path), staged.upload_id)

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`. Asks page by page, as the iterator is read."""
        check_prefix(prefix)
        return self._uploads(self._prefix + prefix)

    # inside

    def _path(self, key: str) -> str:
        return key[len(self._prefix) :]

    def _nothing_of(self, path: str) -> ObjectData:
        return ObjectData(**asdict(self.head(path), recurse=False), data=b"")

    def _uploads(self, prefix: str) -> Iterator[StagedInfo]:
        # Not url-encoded, for SeaweedFS says that it did so and does not. It costs nothing: only control
        # characters cannot be told of in XML, and no path has any.
        query = {"uploads": "", "prefix": prefix}
        following: Mapping[str, str] | None = {}
        while following is not None:
            request = Request("GET", query={**query, **following})
            found, then = self._read(
                request,
                "ListMultipartUploadsResult",
                lambda answer: (uploads(answer, self._prefix), next_upload(answer)),
            )
            yield from found
            if then == following:
                raise self._endless(request)
            following = then

    def _read(self, request: Request, tag: str, read: Callable[[Element], T]) -> T:
        """Return what `read` takes out of the answer to a request that may be repeated."""
        answer = parse(self._bucket.fetch(request)().body)
        problem = ""
        if answer is not None and answer.tag == tag:
            try:
                return read(answer)
            except ValueError as error:
                problem = f": {error}"
        raise Unavailable(f"{self._bucket.what(request)}: the answer is no {tag}{problem}")

    def _endless(self, request: Request) -> Unavailable:
        return Unavailable(
            f"{self._bucket.what(request)}: the listing does not advance; it was given up"
        )

    def _published(self, request: Request, response: Response, path: str) -> PutResult:
        # These two send 200 before they know how it ends: see CopyObject and CompleteMultipartUpload.
        answer = parse(response.body)
        if answer is None or answer.tag not in _PUBLISHED:
            raise self._bucket.fault(request, response)
        return self._written(request, response, path, answer.findtext("ETag"))

    def _written(
        self, request: Request, response: Response, path: str, etag: str | None = None
    ) -> PutResult:
        try:
            return put_result(path, response.headers, etag)
        except ValueError as error:  # of something else that answers to all with 200
            raise OutcomeUnknown(
                f"{self._bucket.what(request)}: the answer was not used: {error}. {LOOK}"
            ) from error

    def _delete_bulk(self, keys: list[str]) -> dict[str, CommitError]:
        body = delete_body(keys)
        headers = {"content-md5": content_md5(body)}
        request = Request("POST", query={"delete": ""}, headers=headers, body=body)
        try:
            response = self._bucket.send(request)()
        except NotSupported:
            return self._delete_each(keys)
        except CommitError as error:
            return dict.fromkeys(keys, error)
        answer = parse(response.body)
        if answer is None or answer.tag != "DeleteResult":
            return dict.fromkeys(keys, self._bucket.fault(request, response))
        what = f"DELETE in s3://{self._name} of"
        return {
            # A code that says nothing certain leaves the outcome unknown, as a status of 500 would.
            key: common_fault(f"{what} {key!r}", 500, code, message)
            for key, code, message in refused_rows(answer)
        }

    def _delete_each(self, keys: list[str]) -> dict[str, CommitError]:
        failures: dict[str, CommitError] = {}
        for key in keys:
            try:
                self.delete(self._path(key))
            except CommitError as error:
                failures[key] = error
        return failures


def _headers(metadata: Mapping[str, str], content_type: str | None) -> dict[str, str]:
    headers = {META + name: value for name, value in metadata.items()}
    if content_type is not None:
        headers["content-type"] = content_type
    return headers


def _is_404(response: Response) -> bool:
    return response.status == 404


def _is_416(response: Response) -> bool:
    return response.status == 416


def _is_settled(response: Response) -> bool:
    """Tell whether an answer to a GET of the first byte says what is there; 416: an empty object."""
    return response.status == 416 or (response.status == 404 and has_code(response))
