"""Objects in a bucket of S3, or of a server that speaks its protocol.

Requests are signed and sent by `commitlog.aws`; hidden retries there are none. Whether a server honours
the conditions that it is sent has to be probed: some answer 200 and ignore them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TypeVar
from xml.etree.ElementTree import Element

from attrs import asdict, evolve

from commitlog._util.retry import Backoff
from commitlog.aws import (
    AwsClient,
    AwsOptions,
    AwsSession,
    Boto3Client,
    Boto3Session,
    Response,
    common_error,
    encode_path,
)
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
    Capabilities,
    Condition,
    Dialect,
    IfAbsent,
    IfMatch,
    InFlight,
    ObjectData,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
    Versioning,
    WriteOperation,
    same_etag,
)
from commitlog.stores.arguments import check_metadata, check_page, check_range
from commitlog.stores.body import MIN_PART_SIZE, PART_SIZE, PUT_LIMIT, Body, chunks, split_body
from commitlog.stores.s3.bucket import LOOK, Bucket, S3Request, content_md5, has_code, is_marked
from commitlog.stores.s3.dialects import spoken
from commitlog.stores.s3.multipart import S3StageWriter, abort_upload
from commitlog.stores.s3.records import (
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
    versioning_of,
)
from commitlog.stores.s3.xml import complete_body, delete_body, http_date, is_xml, parse, refused_rows
from commitlog.stores.s3_options import ObjectOptions
from commitlog.urls import Url, parse_store_url

__all__ = ["S3Store"]

T = TypeVar("T")

_EMPTY: Mapping[str, str] = MappingProxyType({})
_BOTH = frozenset({IfAbsent, IfMatch})
_BULK = 1000
#: Ends the name of each bucket of S3 Express One Zone, and of no other.
_DIRECTORY_BUCKET = "--x-s3"
_TRIES = 3
#: An element that each valid answer has. boto3 does not look at the name of the root, and some servers
#: use another one: rclone answers to the begin of an upload with ``InitiateMultipartUpload``.
_SIGNS = MappingProxyType(
    {
        "InitiateMultipartUploadResult": "UploadId",
        "ListBucketResult": "IsTruncated",
        "ListMultipartUploadsResult": "IsTruncated",
        "VersioningConfiguration": "Status",
    }
)
_PUBLISHED = frozenset({"CompleteMultipartUploadResult", "CopyObjectResult"})


class S3Store(ObjectStore):
    """A bucket, or the objects below a prefix of it. Thread-safe.

    Args:
        url: ``s3://bucket/prefix?endpoint_url=…``.
        options: options of the connection; they override the URL's query.
        object_options: options of stored objects; they override the URL's query.
        session, client: a boto3 session or client for the settings that the options leave open; see
            `AwsSession`.
        clock: dates signatures and measures waits between repeated reads; the system's by default.
        backoff: the retry policy of reads, and of uploads that are not visible yet.
        part_size: bytes of the first parts of a large upload, at least 5 MiB.
        put_limit: bytes of the largest body that is put in one request.
        parallel_parts: parts of one upload that are under way at once.

    Raises `ConfigurationError` if the endpoint or the credentials cannot be determined, and
    `NotSupported` for a directory bucket. Nothing is sent before the first call.

    Not guaranteed: that HEAD distinguishes a missing bucket from a missing object (its response has no
    body), and that a copy of more than 5 GiB works (the service refuses it).
    """

    capabilities = Capabilities(
        conditions=MappingProxyType(
            {
                WriteOperation.PUT: _BOTH,
                WriteOperation.COPY: _BOTH,
                WriteOperation.PUBLISH: _BOTH,
                WriteOperation.DELETE: frozenset({IfMatch}),
            }
        ),
        enforced=False,
        request_expiry=True,
        dialects=spoken("auto"),
    )

    def __init__(
        self,
        url: str | Url,
        *,
        options: AwsOptions | None = None,
        object_options: ObjectOptions | None = None,
        session: Boto3Session | None = None,
        client: Boto3Client | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        part_size: int = PART_SIZE,
        put_limit: int = PUT_LIMIT,
        parallel_parts: int = 8,
    ) -> None:
        parsed = parse_store_url(url) if isinstance(url, str) else url
        if parsed.scheme != "s3":
            raise ConfigurationError(f"{parsed} is not an s3:// URL")
        if parsed.name.endswith(_DIRECTORY_BUCKET):
            raise NotSupported(
                f"{parsed} is a directory bucket (S3 Express One Zone), which needs sessions of its own:"
                " use a general purpose bucket"
            )
        if part_size < MIN_PART_SIZE:
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
        options = AwsOptions.from_url(parsed) if options is None else options
        aws = AwsSession(options, session, client=client)
        aws_client = AwsClient(aws, "s3", aws.endpoint("s3", bucket=parsed.name), clock=clock)
        self._objects = ObjectOptions.from_url(parsed) if object_options is None else object_options
        self._of_new_objects = self._objects.of_new_objects
        if self._objects.dialect != "auto":
            self.capabilities = evolve(self.capabilities, dialects=spoken(self._objects.dialect))
        self._bucket = Bucket(
            parsed.name,
            aws_client,
            clock=clock,
            backoff=backoff or aws.backoff(),
            headers=self._objects.of_all_requests,
            checksum=self._objects.checksum == "md5",
        )

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def key(self, path: str) -> str:
        """Return `path` below the prefix that was opened."""
        return check_path(self._prefix + check_path(path))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._bucket.close()

    # reads

    def versioning(self) -> Versioning | None:
        """See `ObjectStore.versioning`. Sends GetBucketVersioning, which may be refused."""
        try:
            request = S3Request("GET", query={"versioning": ""})
            return self._read(request, "VersioningConfiguration", versioning_of)
        except CommitError:
            return None

    def begin_head(self, path: str) -> InFlight[Observation]:
        """See `ObjectStore.begin_head`. A missing bucket looks like a missing object.

        The answer to a HEAD has no body. So a 404 counts if the store has marked it as its own, and else
        if a GET, whose answer has an error code, says the same.
        """
        key = self.key(path)
        request = S3Request("HEAD", key)
        pending = self._bucket.fetch(request, accept=_is_404, flaw=no_etag)

        def observation() -> Observation:
            response = pending()
            for _ in range(_TRIES):
                if response.status != 404 or is_marked(response) or has_code(response):
                    break
                response = self._bucket.fetch(
                    S3Request("GET", key, headers={"range": "bytes=0-0"}),
                    accept=_is_settled,
                    flaw=no_etag,
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
        request = S3Request("GET", key, headers=headers)
        for _ in range(_TRIES):
            response = self._bucket.fetch(request, accept=_is_416, flaw=no_etag)()
            if response.status != 416:
                # rclone sends a part of the object with status 200.
                if response.status == 206 or "content-range" in response.headers:
                    return range_data(path, response.headers, response.body, start, end)
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
        request = S3Request("GET", query=query)
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
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.put`."""
        key = self.key(path)
        headers = self._headers(check_metadata(metadata), content_type)
        small, rest = split_body(body, self._put_limit)
        if rest is None:
            request = S3Request(
                "PUT", key, headers=headers, body=small, condition=condition, expiry=expiry
            )
            return self._written(request, self._send(request, path), path)
        with self.begin_stage(path, metadata=metadata, content_type=content_type) as writer:
            writer.write(small)
            for chunk in chunks(rest):
                writer.write(chunk)
            staged = writer.finish()
        try:
            return self.publish(staged, condition=condition, expiry=expiry)
        except OutcomeUnknown:
            raise
        except CommitError:
            with suppress(CommitError):  # it is invisible, and `list_staged` finds it
                self.abort(staged)
            raise

    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.copy`."""
        headers = {
            "x-amz-copy-source": f"/{self._name}/{encode_path(self.key(source))}",
            **self._objects.of_copies,
        }
        request = S3Request("PUT", self.key(target), headers=headers, condition=condition, expiry=expiry)
        try:
            response = self._send(request, target)
        except NotFound as error:
            # S3 says "no such key" of either object.
            if isinstance(condition, IfMatch) and self.begin_head(source)().info is not None:
                raise PreconditionFailed(
                    f"{target!r} should have etag {condition.etag}, but there is no object"
                ) from error
            raise NotFound(f"no object at {source!r} in {self.url} to copy") from error
        return self._published(request, response, target)

    def delete(
        self, path: str, *, condition: IfMatch | None = None, expiry: RequestExpiry | None = None
    ) -> None:
        """See `ObjectStore.delete`. In a bucket with versions the older ones stay."""
        request = S3Request("DELETE", self.key(path), condition=condition, expiry=expiry)
        try:
            self._send(request, path)
        except NotFound as error:
            if condition is not None:
                raise PreconditionFailed(
                    f"{path!r} should have etag {condition.etag}, but there is no object"
                ) from error

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`. One request for each thousand, where the server offers it."""
        all_keys = [self.key(path) for path in paths]
        keys = [key for key in all_keys if is_xml(key)]
        failures = self._delete_each([key for key in all_keys if not is_xml(key)])
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
        request = S3Request("POST", key, {"uploads": ""}, self._headers(kept, content_type))
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
        self, staged: Staged, *, condition: Condition | None = None, expiry: RequestExpiry | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        request = S3Request(
            "POST",
            self.key(staged.path),
            {"uploadId": staged.upload_id},
            body=complete_body(staged.parts),
            condition=condition,
            expiry=expiry,
        )
        return self._published(request, self._send(request, staged.path), staged.path)

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`. Repeated as needed."""
        abort_upload(self._bucket, self.key(staged.path), staged.upload_id)

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`. Asks page by page, as the iterator is read."""
        check_prefix(prefix)
        return self._uploads(self._prefix + prefix)

    # inside

    def _send(self, request: S3Request, path: str) -> Response:
        """Send a mutation of the object at `path`, once.

        Google Cloud Storage has no condition on the etag of a write. There, a HEAD finds the generation
        of the object with that etag, and the write is conditional on that generation.
        """
        condition = request.condition
        if isinstance(condition, IfMatch) and condition.dialect is Dialect.GCS:
            info = self.begin_head(path)().info
            if info is None or not same_etag(info.etag, condition.etag):
                raise PreconditionFailed(
                    f"{self._bucket.what(request)}: it should have etag {condition.etag}, but has "
                    "another or is gone; nothing was sent"
                )
            if info.version is None:
                raise NotSupported(
                    f"{self._bucket.what(request)}: the store reports no generation of the object, on "
                    "which its condition rests; nothing was sent"
                )
            request = evolve(request, generation=info.version)
        return self._bucket.send(request)()

    def _headers(self, metadata: Mapping[str, str], content_type: str | None) -> dict[str, str]:
        headers = {META + name: value for name, value in metadata.items()}
        if content_type is not None:
            headers["content-type"] = content_type
        headers.update(self._of_new_objects)
        return headers

    def _path(self, key: str) -> str:
        return key[len(self._prefix) :]

    def _nothing_of(self, path: str) -> ObjectData:
        return ObjectData(**asdict(self.head(path), recurse=False), data=b"")

    def _uploads(self, prefix: str) -> Iterator[StagedInfo]:
        # Not url-encoded, because SeaweedFS claims to encode and does not. Nothing is lost: XML cannot
        # hold control characters, and no path has any.
        query = {"uploads": "", "prefix": prefix}
        following: Mapping[str, str] | None = {}
        while following is not None:
            request = S3Request("GET", query={**query, **following})
            found, then = self._read(
                request,
                "ListMultipartUploadsResult",
                lambda answer: (uploads(answer, self._prefix), next_upload(answer)),
            )
            yield from found
            if then == following:
                raise self._endless(request)
            following = then

    def _read(self, request: S3Request, tag: str, read: Callable[[Element], T]) -> T:
        """Return what `read` takes out of the answer to a request that may be repeated."""
        answer = parse(self._bucket.fetch(request)().body)
        problem = ""
        if answer is not None and _is(answer, tag, _SIGNS[tag]):
            try:
                return read(answer)
            except ValueError as error:
                problem = f": {error}"
        raise Unavailable(f"{self._bucket.what(request)}: the answer is not a valid {tag}{problem}")

    def _endless(self, request: S3Request) -> Unavailable:
        return Unavailable(f"{self._bucket.what(request)}: the listing does not advance and was stopped")

    def _published(self, request: S3Request, response: Response, path: str) -> PutResult:
        # These two send 200 before they know how it ends: see CopyObject and CompleteMultipartUpload.
        answer = parse(response.body)
        if answer is None or not any(_is(answer, tag, "ETag") for tag in _PUBLISHED):
            raise self._bucket.fault(request, response)
        return self._written(request, response, path, answer.findtext("ETag"))

    def _written(
        self, request: S3Request, response: Response, path: str, etag: str | None = None
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
        request = S3Request("POST", query={"delete": ""}, headers=headers, body=body)
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
            key: common_error(f"{what} {key!r}", 500, code, message)
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


def _is(answer: Element, tag: str, sign: str) -> bool:
    """Return whether an answer is a `tag`, by its name or else by the child that each has."""
    return answer.tag == tag or (answer.tag != "Error" and answer.find(sign) is not None)


def _is_404(response: Response) -> bool:
    return response.status == 404


def _is_416(response: Response) -> bool:
    return response.status == 416


def _is_settled(response: Response) -> bool:
    """Return whether the response to a GET of the first byte is conclusive; 416: an empty object."""
    return response.status == 416 or (response.status == 404 and has_code(response))
