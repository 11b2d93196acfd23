"""The S3 store with answers that no server of the other tests gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from commitlog.aws import AwsClient, AwsOptions, Response
from commitlog.errors import AccessDenied, CommitError, ConfigurationError, PreconditionFailed
from commitlog.stores.api import IfMatch
from commitlog.stores.s3.store import S3Store
from commitlog.stores.s3.xml import parse
from commitlog.testing import ManualClock

OPTIONS = AwsOptions(
    endpoint_url="http://127.0.0.1:9", region="r", access_key_id="id", secret_access_key="secret"
)


def test_a_conditional_deletion_of_a_missing_object_never_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever code the server has for it."""

    def begin(self: AwsClient, method: str, path: str, **options: Any) -> Callable[[], Response]:
        return lambda: Response(404, {}, b"<Error><Code>NotFound</Code></Error>")

    monkeypatch.setattr(AwsClient, "begin", begin)
    store = S3Store("s3://bucket", options=OPTIONS, clock=ManualClock())
    store.delete("a")
    with pytest.raises(PreconditionFailed, match="there is no object"):
        store.delete("a", condition=IfMatch('"e"'))
    store.close()


def test_a_name_that_xml_cannot_hold_does_not_prevent_a_bulk_removal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is removed by a request of its own."""
    removed: list[str] = []

    def begin(self: AwsClient, method: str, path: str, **options: Any) -> Callable[[], Response]:
        if method == "DELETE":
            removed.append(unquote(path))
            return lambda: Response(204, {}, b"")
        asked = parse(options["body"])
        if asked is None:
            return lambda: Response(400, {}, b"<Error><Code>MalformedXML</Code></Error>")
        removed.extend(f"/{key.text}" for key in asked.iter("Key"))
        return lambda: Response(200, {}, b"<DeleteResult/>")

    monkeypatch.setattr(AwsClient, "begin", begin)
    store = S3Store("s3://bucket", options=OPTIONS, clock=ManualClock())
    assert store.delete_many(["a", "b\ufffe", "c"]) == {}
    assert sorted(removed) == ["/a", "/b\ufffe", "/c"]
    store.close()


class Uploads:
    """A server that takes uploads.

    Attributes:
        refused: the number of the part that the server refuses.
        aborted: whether the upload was aborted.
    """

    def __init__(self) -> None:
        self.refused = ""
        self.aborted = False

    def begin(self, method: str, path: str, **options: Any) -> Callable[[], Response]:
        """Answer a request."""
        if method == "POST":
            kind = "InitiateMultipartUploadResult"
            body = f"<{kind}><UploadId>1</UploadId></{kind}>".encode()
            return lambda: Response(200, {}, body)
        if method == "DELETE":
            self.aborted = True
            return lambda: Response(204, {}, b"")
        if options["query"]["partNumber"] == self.refused:
            return lambda: Response(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        return lambda: Response(200, {"etag": '"e"'}, b"")


@pytest.mark.parametrize(
    ("refused", "most", "error"), [("", 2, ConfigurationError), ("1", 10_000, AccessDenied)]
)
def test_an_upload_with_a_failed_write_is_not_finished(
    monkeypatch: pytest.MonkeyPatch, refused: str, most: int, error: type[CommitError]
) -> None:
    """It has too many parts, or a part was refused: bytes are missing. It can be aborted."""
    server = Uploads()
    server.refused = refused
    monkeypatch.setattr(AwsClient, "begin", lambda _, *args, **options: server.begin(*args, **options))
    monkeypatch.setattr("commitlog.stores.s3.multipart.MAX_PARTS", most)
    store = S3Store(
        "s3://bucket", options=OPTIONS, clock=ManualClock(), part_size=5 << 20, parallel_parts=1
    )
    writer = store.begin_stage("a")
    with pytest.raises(error):
        writer.write(bytes(20 << 20))
    for proceed in (lambda: writer.write(b"more"), writer.finish):
        with pytest.raises(ConfigurationError, match=rf"a write has failed \({error.__name__}"):
            proceed()
    writer.abort()
    assert server.aborted
    store.close()
