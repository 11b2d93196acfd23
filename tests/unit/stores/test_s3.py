"""The S3 store with answers that no server of the other tests gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from commitlog.aws import AwsClient, AwsOptions, Response
from commitlog.errors import PreconditionFailed
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
