"""A multipart upload as a `StageWriter`: parts are sent while the next ones are written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from commitlog._util.tracing import carried
from commitlog.errors import ConfigurationError, OutcomeUnknown, Unavailable
from commitlog.stores.api import Staged, StageWriter
from commitlog.stores.body import MAX_PARTS, part_size
from commitlog.stores.s3.bucket import Bucket, S3Request, has_code

__all__ = ["S3StageWriter", "abort_upload"]


class S3StageWriter(StageWriter):
    """Writes one upload that exists already. Not thread-safe.

    Args:
        bucket: the bucket.
        key: full key of the object.
        path: path of the object, for the result.
        upload_id: the upload's id.
        nonce: the nonce in the metadata of the upload.
        part_size: size of the first parts in bytes, at least 5 MiB.
        parallel: number of parts that are sent at a time; each of them is in memory.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        key: str,
        path: str,
        upload_id: str,
        nonce: str,
        part_size: int,
        parallel: int,
    ) -> None:
        self._bucket = bucket
        self._key = key
        self._path = path
        self._upload_id = upload_id
        self._nonce = nonce
        self._part_size = part_size
        self._parallel = parallel
        self._buffer = bytearray()
        self._size = 0
        self._parts: list[Future[str]] = []
        self._executor: ThreadPoolExecutor | None = None
        self._open = True

    def _append(self, data: memoryview) -> None:
        """Raise what the upload of an earlier part raised."""
        self._check_open()
        rest = data
        self._size += len(data)
        while rest:
            room = part_size(len(self._parts) + 1, self._part_size) - len(self._buffer)
            if not room:  # only now: the last part is sent by `finish`
                self._begin_part(self._buffer)
                self._buffer = bytearray()
                continue
            self._buffer += rest[:room]
            rest = rest[room:]

    def finish(self) -> Staged:
        """Upload the rest, wait for all parts, and return the complete upload."""
        self._check_open()
        self._check_whole()
        # There must be a part, even of nothing; and the last one needs no thread.
        last = self._upload(len(self._parts) + 1, self._buffer)
        etags = [*(part.result() for part in self._parts), last]
        self._release()
        return Staged(
            path=self._path,
            upload_id=self._upload_id,
            size=self._size,
            nonce=self._nonce,
            parts=tuple(etags),
        )

    def abort(self) -> None:
        """Wait for the parts under way, then drop the upload."""
        if self._open:
            # A part that arrives after the abort would be kept, and be paid for.
            self._release()
            abort_upload(self._bucket, self._key, self._upload_id)

    def _check_open(self) -> None:
        if not self._open:
            raise ConfigurationError(f"the upload of {self._path!r} is finished or aborted already")

    def _begin_part(self, data: bytearray) -> None:
        number = len(self._parts) + 1
        if number >= MAX_PARTS:
            raise ConfigurationError(
                f"{self._path!r} needs more than {MAX_PARTS} parts: raise part_size"
            )
        if number > self._parallel:
            self._parts[number - self._parallel - 1].result()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._parallel, "commitlog-upload")
        self._parts.append(self._executor.submit(carried(self._upload), number, data))

    def _upload(self, number: int, data: bytearray) -> str:
        query = {"partNumber": str(number), "uploadId": self._upload_id}
        request = S3Request("PUT", self._key, query, body=data)
        etag = self._bucket.fetch(request)().headers.get("etag")
        if not etag:
            raise Unavailable(f"{self._bucket.what(request)}: the answer is not from S3: it has no etag")
        return etag

    def _release(self) -> None:
        self._open = False
        self._buffer = bytearray()
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)


def abort_upload(bucket: Bucket, key: str, upload_id: str) -> None:
    """Drop an upload; one that is gone is no error. Repeated as needed: it is idempotent."""
    request = S3Request("DELETE", key, {"uploadId": upload_id})
    try:
        bucket.fetch(request, accept=lambda answer: answer.status == 404 and has_code(answer))()
    except Unavailable as error:
        # An earlier try may have had its effect.
        raise OutcomeUnknown(f"{error}. The upload may be there still") from error
