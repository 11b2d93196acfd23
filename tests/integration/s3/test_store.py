"""The S3 store on real servers, and behind a proxy that loses and injects responses."""

from __future__ import annotations

import io
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import md5
from threading import Thread
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, AwsOptions, AwsSession, Response
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    CommitError,
    ConfigurationError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    Unavailable,
)
from commitlog.stores import IfAbsent, IfMatch, ObjectStore, RequestExpiry, WriteOperation
from commitlog.stores.s3.bucket import Bucket, S3Request
from commitlog.stores.s3.records import object_info
from commitlog.stores.s3.store import S3Store
from commitlog.testing import ManualClock
from commitlog.testing.contract.store import check_object_store
from commitlog.testing.proxy import Proxy, ProxyFault
from support.selection import with_all
from support.servers import Juicefs, Ministack, Seaweedfs

pytestmark = pytest.mark.servers

MIB = 1024 * 1024
BOTH = frozenset({IfAbsent, IfMatch})
ODD = "a b/ü+%25~&'\"<>*(日)=?#x@:;,$!.😀"

Opener = Callable[..., S3Store]
Servers = Ministack | Seaweedfs | Juicefs


@pytest.fixture
def open_store() -> Iterator[Opener]:
    """Open stores that are closed with the test, on a new bucket unless one is named."""
    with ExitStack() as stack:

        def make(server: Servers, prefix: str = "", *, bucket: str = "", **options: Any) -> S3Store:
            given = {name: options.pop(name) for name in ("clock", "backoff") if name in options}
            sizes = {
                name: options.pop(name)
                for name in ("part_size", "put_limit", "parallel_parts")
                if name in options
            }
            aws = AwsOptions(**{**server.options, **options})
            url = f"s3://{bucket or server.new_bucket()}/{prefix}"
            store = S3Store(url, options=aws, **given, **sizes)
            stack.callback(store.close)
            return store

        yield make


@pytest.fixture(scope="module")
def proxy(ministack: Ministack) -> Iterator[Proxy]:
    """A proxy in front of ministack."""
    with Proxy(ministack.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def store(ministack: Ministack, proxy: Proxy, open_store: Opener) -> S3Store:
    """A store behind the proxy, with a manual clock and three attempts."""
    opened = open_store(
        ministack,
        endpoint_url=proxy.endpoint_url,
        clock=ManualClock(epoch=time.time()),
        backoff=Backoff(tries=3),
        part_size=5 * MIB,
        put_limit=MIB,
    )
    proxy.requests()
    return opened


def _error(code: str, message: str = "why") -> str:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


# -- the contract ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [with_all(""), "some/odd +prefix"])
def test_contract_on_ministack(ministack: Ministack, open_store: Opener, prefix: str) -> None:
    """All rules hold, except for conditions on copies, which this server ignores."""
    conditions = dict(S3Store.capabilities.conditions) | {WriteOperation.COPY: frozenset()}
    check_object_store(
        open_store(ministack, prefix), conditions=conditions, fresh_etags=False, forgets_uploads=False
    )


@pytest.mark.parametrize("prefix", ["", with_all("some/odd +prefix")])
def test_contract_on_seaweedfs(seaweedfs: Seaweedfs, open_store: Opener, prefix: str) -> None:
    """All rules hold on a server that checks signatures. It lists in a different order."""
    check_object_store(
        open_store(seaweedfs, prefix),
        byte_order=False,
        fresh_etags=False,
        forgets_uploads=False,
        # Concurrent completions on this server can have several winners.
        races={WriteOperation.PUT: BOTH, WriteOperation.COPY: BOTH},
        threads=3,
        keys=1,
    )


def test_contract_on_juicefs(juicefs: Juicefs, open_store: Opener) -> None:
    """Rules without conditions hold on a server that ignores all conditions."""
    # One thread, because concurrent completions of one upload lose the metadata on this server.
    check_object_store(open_store(juicefs), conditions={}, fresh_etags=False, nested=False, threads=1)


@pytest.mark.campaign
def test_reads_of_juicefs_are_torn(
    juicefs: Juicefs, open_store: Opener, campaign_seconds: float
) -> None:
    """During a replacement, some responses have the etag of one version and the body of the next."""
    writer, reader = (open_store(juicefs, bucket=bucket) for bucket in [juicefs.new_bucket()] * 2)
    writer.put("a", b"0")
    end = time.monotonic() + campaign_seconds

    def write() -> None:
        number = 0
        while time.monotonic() < end:
            writer.put("a", str(number := number + 1).encode())

    thread = Thread(target=write)
    thread.start()
    reads: Counter[bool] = Counter()
    while time.monotonic() < end:
        found = reader.get("a")
        reads[found.etag.strip('"') == md5(found.data).hexdigest()] += 1
    thread.join()
    print(f"\n{reads[False]} of {reads.total()} reads were torn")
    assert reads[False]


# -- signatures, expiries, names -------------------------------------------------------------------


def test_requests_with_special_characters_are_signed_correctly(
    seaweedfs: Seaweedfs, open_store: Opener
) -> None:
    """A server that checks signatures accepts any legal key, signed in headers or in the query."""
    store = open_store(seaweedfs, "+ %41")
    metadata = {"commitlog-nonce": "n", "two": "a  b"}
    expiry = RequestExpiry(store.begin_head(ODD)().store_time or 0, 60)
    store.put(ODD, b"1", metadata=metadata, content_type="text/plain; charset=utf-8", expiry=expiry)
    store.put(
        ODD, b"2", metadata=metadata, content_type="text/plain", condition=IfMatch(store.head(ODD).etag)
    )
    store.copy(ODD, f"copy/{ODD}", expiry=expiry, condition=IfAbsent())
    store.publish(store.stage(f"staged/{ODD}", b"3"), expiry=expiry, condition=IfAbsent())
    assert store.get(f"copy/{ODD}", start=0, end=9).data == b"2"
    assert store.head(ODD).metadata["commitlog-nonce"] == "n"
    assert {info.path for info in store.list()} == {ODD, f"copy/{ODD}", f"staged/{ODD}"}
    store.delete(ODD, expiry=expiry)
    assert store.delete_many([f"copy/{ODD}", f"staged/{ODD}"]) == {}
    assert not list(store.list())


@pytest.mark.parametrize("server", ["ministack", "seaweedfs", "juicefs"])
def test_uploads_to_keys_with_special_characters_are_listed(
    request: pytest.FixtureRequest, open_store: Opener, server: str
) -> None:
    """An upload is listed under its original path, so that it can be aborted."""
    store = open_store(request.getfixturevalue(server), "+ %41")
    paths = [f"city=a%2Fb/{ODD}" if server == "seaweedfs" else "city=a%2Fb/x+y z.parquet", "plain"]
    for path in paths:
        store.stage(path, b"1")
    found = list(store.list_staged())
    assert sorted(upload.path for upload in found) == sorted(paths)
    for upload in found:
        store.abort(upload)
    assert not list(store.list_staged())


def test_an_expired_request_is_refused(seaweedfs: Seaweedfs, open_store: Opener) -> None:
    """The store's own clock decides whether a request has expired."""
    store = open_store(seaweedfs)
    now = store.begin_head("a")().store_time
    assert now is not None
    store.put("a", b"early", expiry=RequestExpiry(now, 60))
    with pytest.raises(RequestExpired):
        store.put("a", b"late", expiry=RequestExpiry(now - 100, 60))
    assert store.get("a").data == b"early"


def test_the_body_of_a_request_with_an_expiry_has_a_checksum(
    ministack: Ministack, open_store: Opener
) -> None:
    """The signature in a query does not cover the body, so its MD5 is sent, signed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = open_store(
            ministack, bucket="bucket", endpoint_url=f"http://127.0.0.1:{listener.getsockname()[1]}"
        )
        thread = Thread(target=lambda: store.put("a", b"hello", expiry=RequestExpiry(1, 60)))
        thread.start()
        connection, _ = listener.accept()
        with connection:
            request = connection.recv(65536)
            connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n')
            thread.join()
    assert b"\r\ncontent-md5: XUFAKrxLKna5cZ2REBfFkg==\r\n" in request
    assert b"X-Amz-SignedHeaders=content-md5%3Bhost" in request


def test_an_expiry_longer_than_a_week_is_refused(ministack: Ministack, open_store: Opener) -> None:
    """S3 does not accept it. The error is raised before a request is sent."""
    with pytest.raises(ConfigurationError, match="604800"):
        open_store(ministack).put("a", b"", expiry=RequestExpiry(int(time.time()), 604_801))


def test_wrong_credentials_are_denied(seaweedfs: Seaweedfs, open_store: Opener) -> None:
    """Reads and writes raise an error, which does not show the key."""
    store = open_store(seaweedfs, secret_access_key="not-the-secret")
    for call in (lambda: store.head("a"), lambda: store.put("a", b""), lambda: store.list_page()):
        with pytest.raises(AccessDenied) as caught:
            call()
        assert "not-the-secret" not in str(caught.value)


def test_a_missing_bucket_differs_from_a_missing_object(
    ministack: Ministack, open_store: Opener
) -> None:
    """Every call whose response has a body reports the missing bucket. HEAD cannot."""
    store = open_store(ministack, bucket="no-such-bucket")
    calls: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.list_page(),
        lambda: store.put("a", b""),
        lambda: store.copy("a", "b"),
        lambda: store.delete("a"),
        lambda: store.begin_stage("a"),
        lambda: list(store.list_staged()),
    ]
    for call in calls:
        with pytest.raises(BucketNotFound):
            call()
    assert isinstance(store.delete_many(["a"])["a"], BucketNotFound)
    assert store.begin_head("a")().info is None


def test_directory_markers_are_not_listed(ministack: Ministack, open_store: Opener) -> None:
    """Empty objects whose key ends in a slash represent directories, and have no data."""
    bucket = ministack.new_bucket()
    for key, body in (("p/", b""), ("p/d/", b""), ("p/e/", b"data"), ("p/f", b"")):
        ministack.client("s3").put_object(Bucket=bucket, Key=key, Body=body)
    store = open_store(ministack, "p", bucket=bucket)
    assert [info.path for info in store.list()] == ["e/", "f"]
    assert store.list_page(delimiter="/").prefixes == ("d/", "e/")


def test_two_prefixes_of_a_bucket_agree_on_keys(ministack: Ministack, open_store: Opener) -> None:
    """An object that is written below one prefix is read below the other, under the same key."""
    bucket = ministack.new_bucket()
    whole, part = open_store(ministack, bucket=bucket), open_store(ministack, "a/b", bucket=bucket)
    part.put("c", b"x")
    assert whole.get("a/b/c").data == b"x"
    assert whole.key("a/b/c") == part.key("c") == "a/b/c"


# -- construction ----------------------------------------------------------------------------------


def test_a_store_does_not_show_its_secrets(ministack: Ministack) -> None:
    """Neither the URL nor the repr of a store has the credentials of its original URL."""
    options = "&".join(f"{name}={value}" for name, value in ministack.options.items())
    store = S3Store(f"s3://bucket/a?{options}")
    for secret in (ministack.access_key_id, ministack.secret_access_key):
        assert secret not in store.url and secret not in repr(store)
    assert S3Store(store.url, options=AwsOptions(**ministack.options)).url == store.url  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("memory://a", {}),
        ("s3://bucket", {"part_size": 5 * MIB - 1}),
        ("s3://bucket", {"put_limit": -1}),
        ("s3://bucket", {"parallel_parts": 0}),
    ],
)
def test_invalid_settings_are_refused(url: str, settings: dict[str, int]) -> None:
    """S3 would refuse the requests of such a store."""
    with pytest.raises(ConfigurationError):
        S3Store(url, options=AwsOptions(endpoint_url="http://127.0.0.1:1"), **settings)


# -- lost responses --------------------------------------------------------------------------------


def _mutations(store: ObjectStore) -> dict[str, tuple[str, Callable[[], object]]]:
    store.put("source", b"new")
    store.put("doomed", b"old")
    staged = store.stage("published", b"new")
    return {
        "put": ("PUT", lambda: store.put("put", b"new")),
        "copied": ("COPY", lambda: store.copy("source", "copied")),
        "published": ("POST", lambda: store.publish(staged)),
        "doomed": ("DELETE", lambda: store.delete("doomed")),
    }


@pytest.mark.parametrize("path", ["put", "copied", "published", "doomed"])
@pytest.mark.parametrize("action", ["drop_response", "drop_request"])
def test_a_mutation_without_a_response_is_sent_once(
    store: S3Store, proxy: Proxy, path: str, action: Any
) -> None:
    """Its outcome is unknown, whether it was executed or not, and the store does not retry."""
    kind, mutation = _mutations(store)[path]
    before = store.begin_head(path)().info
    proxy.requests()
    proxy.inject(ProxyFault(kind=kind, action=action))
    with pytest.raises(OutcomeUnknown):
        mutation()
    assert len(proxy.requests()) == 1
    after = store.begin_head(path)().info
    assert (before == after) is (action == "drop_request")


@pytest.mark.parametrize("fault", ["drop_response", 500, 503], ids=str)
def test_reads_are_repeated(store: S3Store, proxy: Proxy, fault: Any) -> None:
    """A read that fails with a transient error is repeated, and the client gets no error."""
    store.put("a", b"x")

    def strike(kind: str) -> None:
        if isinstance(fault, int):
            proxy.inject(ProxyFault(kind=kind, action="answer", status=fault, times=2))
        else:
            proxy.inject(ProxyFault(kind=kind, action=fault, times=2))

    strike("HEAD")
    assert store.head("a").size == 1
    strike("GET")
    assert store.get("a").data == b"x"
    strike("GET")
    assert [info.path for info in store.list()] == ["a"]
    strike("GET")
    assert list(store.list_staged()) == []


def test_a_replaced_larger_object_is_read_again(store: S3Store, proxy: Proxy) -> None:
    """A range after the end of an object is read from the larger object that replaced it."""
    store.put("a", b"larger")
    proxy.inject(ProxyFault(kind="GET", action="answer", status=416))
    assert store.get("a", start=4, end=9).data == b"er"


def test_reads_have_a_limited_number_of_attempts(store: S3Store, proxy: Proxy) -> None:
    """After the last attempt the store is unavailable. A read has no unknown outcome."""
    proxy.requests()
    proxy.inject(ProxyFault(kind="GET", action="drop_response", times=3))
    with pytest.raises(Unavailable, match="stopped after several attempts"):
        store.get("a")
    assert len(proxy.requests()) == 3


def test_permanent_errors_are_not_repeated(store: S3Store, proxy: Proxy) -> None:
    """A permanent refusal is reported at once."""
    proxy.inject(ProxyFault(kind="GET", action="answer", status=403, body=_error("AccessDenied")))
    with pytest.raises(AccessDenied):
        store.get("a")


def test_a_closed_port_is_unavailable(ministack: Ministack, open_store: Opener) -> None:
    """The error proves that a mutation did not happen."""
    store = open_store(ministack, endpoint_url="http://127.0.0.1:9")
    with pytest.raises(Unavailable):
        store.put("a", b"")


# -- the meaning of responses ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (412, "PreconditionFailed", "", AlreadyExists),
        (409, "ConditionalRequestConflict", "", Conflict),
        (409, "OperationAborted", "", Conflict),
        (409, "InvalidBucketState", "", CommitError),
        (503, "SlowDown", "", Unavailable),
        (400, "RequestTimeout", "", Unavailable),
        (400, "BadDigest", "", Unavailable),
        (503, "ServiceUnavailable", "", OutcomeUnknown),
        (500, "InternalError", "", OutcomeUnknown),
        (403, "AccessDenied", "Request has expired", RequestExpired),
        (403, "AccessDenied", "Access Denied", AccessDenied),
        (400, "ExpiredToken", "The provided token has expired.", AccessDenied),
        (404, "NoSuchBucket", "", BucketNotFound),
        (301, "PermanentRedirect", "", ConfigurationError),
    ],
)
def test_each_refusal_of_a_put_has_its_error(
    store: S3Store, proxy: Proxy, status: int, code: str, message: str, kind: type[CommitError]
) -> None:
    """Each response to a put with a condition and an expiry becomes the matching error."""
    proxy.requests()
    proxy.inject(ProxyFault(kind="PUT", action="answer", status=status, body=_error(code, message)))
    with pytest.raises(CommitError) as caught:
        store.put("a", b"", condition=IfAbsent(), expiry=RequestExpiry(int(time.time()), 60))
    assert type(caught.value) is kind
    assert len(proxy.requests()) == 1


@pytest.mark.parametrize(
    ("status", "code", "date", "kind"),
    [
        (403, "AccessDenied", "Sat, 21 Nov 2026 10:00:31 GMT", RequestExpired),
        (403, "AccessDenied", "Sat, 21 Nov 2026 10:00:30 GMT", RequestExpired),
        (400, "SomethingElse", "Sat, 21 Nov 2026 10:00:31 GMT", RequestExpired),
        (403, "AccessDenied", "Sat, 21 Nov 2026 10:00:29 GMT", AccessDenied),
        (403, "AccessDenied", "some time", AccessDenied),
        (412, "PreconditionFailed", "Sat, 21 Nov 2026 10:00:31 GMT", CommitError),
        # One that was begun in time may have happened.
        (500, "InternalError", "Sat, 21 Nov 2026 10:00:31 GMT", OutcomeUnknown),
        (503, "", "Sat, 21 Nov 2026 10:00:31 GMT", OutcomeUnknown),
    ],
)
def test_a_refusal_dated_after_the_expiry_is_an_expired_request(
    ministack: Ministack, status: int, code: str, date: str, kind: type[CommitError]
) -> None:
    """Ceph responds with AccessDenied only, and its Date header shows the reason."""
    session = AwsSession(AwsOptions(**ministack.options))  # type: ignore[arg-type]
    clock = ManualClock()
    client = AwsClient(session, "s3", ministack.endpoint_url, clock=clock)
    bucket = Bucket("bucket", client, clock=clock, backoff=Backoff())
    answer = Response(status, {"date": date}, _error(code, "").encode())
    ten = 1_795_255_200  # ten o'clock on that day
    fault = bucket.fault(S3Request("PUT", "a", expiry=RequestExpiry(ten, 30)), answer)
    assert type(fault) is kind
    without_expiry = bucket.fault(S3Request("PUT", "a"), answer)
    assert not isinstance(without_expiry, RequestExpired)


def test_a_request_without_an_expiry_is_never_expired(store: S3Store, proxy: Proxy) -> None:
    """Without an expiry, the same response means denied access."""
    body = _error("AccessDenied", "Request has expired")
    proxy.inject(ProxyFault(kind="PUT", action="answer", status=403, body=body))
    with pytest.raises(AccessDenied):
        store.put("a", b"")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (_error("InternalError"), OutcomeUnknown),
        ("", OutcomeUnknown),
        (_error("SlowDown"), Unavailable),
        (_error("PreconditionFailed"), AlreadyExists),
    ],
    ids=["error", "nothing", "shed", "condition"],
)
@pytest.mark.parametrize("path", ["copied", "published"])
def test_an_error_can_come_with_status_200(
    store: S3Store, proxy: Proxy, path: str, body: str, kind: type[CommitError]
) -> None:
    """CopyObject and CompleteMultipartUpload send 200 before the result is known, so the body counts."""
    store.put("source", b"x")
    staged = store.stage("published", b"x")
    operation = "COPY" if path == "copied" else "POST"
    proxy.inject(ProxyFault(kind=operation, action="answer", status=200, body=body))
    calls: dict[str, Callable[[], object]] = {
        "copied": lambda: store.copy("source", path, condition=IfAbsent()),
        "published": lambda: store.publish(staged, condition=IfAbsent()),
    }
    with pytest.raises(CommitError) as caught:
        calls[path]()
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("source", "kind"), [("there", PreconditionFailed), ("missing", NotFound)], ids=["target", "source"]
)
def test_no_such_key_of_a_copy_is_attributed_to_source_or_target(
    store: S3Store, proxy: Proxy, source: str, kind: type[CommitError]
) -> None:
    """A missing target fails the condition, and a missing source is not found."""
    store.put("there", b"x")
    proxy.inject(ProxyFault(kind="COPY", action="answer", status=404, body=_error("NoSuchKey")))
    with pytest.raises(CommitError) as caught:
        store.copy(source, "target", condition=IfMatch('"x"'))
    assert type(caught.value) is kind


#: The response of an ingress to an unknown route.
INGRESS = "404 page not found\n"


def _ingress(kind: str, times: int = 1) -> ProxyFault:
    return ProxyFault(kind=kind, action="answer", status=404, body=INGRESS, times=times)


READS: dict[str, Callable[[S3Store], object]] = {
    "get": lambda store: store.get("there").data,
    "range": lambda store: store.get("there", start=0, end=1).data,
    "list": lambda store: [info.path for info in store.list()],
    "uploads": lambda store: [upload.path for upload in store.list_staged()],
}


@pytest.mark.parametrize("name", READS)
def test_a_read_is_repeated_after_a_404_without_a_code(store: S3Store, proxy: Proxy, name: str) -> None:
    """If no other response follows, the store is unavailable, and the object is not "not found"."""
    store.put("there", b"x")
    staged = store.stage("staged", b"y")
    expected = READS[name](store)
    assert expected
    proxy.inject(_ingress("GET"))
    assert READS[name](store) == expected
    proxy.inject(_ingress("GET", times=3))
    with pytest.raises(Unavailable, match="404"):
        READS[name](store)
    store.abort(staged)


WRITES: dict[str, tuple[str, Callable[[S3Store, Any], object]]] = {
    "put": ("PUT", lambda store, _: store.put("there", b"z")),
    "update": ("PUT", lambda store, _: store.put("there", b"z", condition=IfMatch('"x"'))),
    "copy": ("COPY", lambda store, _: store.copy("there", "target")),
    "delete": ("DELETE", lambda store, _: store.delete("there")),
    "publish": ("PUBLISH", lambda store, staged: store.publish(staged)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_unknown_after_a_404_without_a_code(store: S3Store, proxy: Proxy, name: str) -> None:
    """It means neither "deleted" nor "no such upload", because the store did not send it."""
    store.put("there", b"x")
    staged = store.stage("staged", b"y")
    kind, write = WRITES[name]
    proxy.inject(_ingress(kind))
    with pytest.raises(OutcomeUnknown):
        write(store, staged)
    assert store.get("there").data == b"x"
    assert [upload.path for upload in store.list_staged()] == ["staged"]


def test_an_abort_is_repeated_after_a_404_without_a_code(store: S3Store, proxy: Proxy) -> None:
    """Such a 404 does not mean that the upload is already removed."""
    staged = store.stage("staged", b"y")
    proxy.inject(_ingress("DELETE"))
    store.abort(staged)
    assert not list(store.list_staged())
    store.abort(staged)


def test_a_head_with_404_is_confirmed_by_a_get(store: S3Store, proxy: Proxy) -> None:
    """The response to a HEAD has no body that identifies the sender, and that to a GET has one."""
    store.put("there", b"x")
    store.put("empty", b"")
    for path in ("there", "empty"):
        proxy.inject(_ingress("HEAD"))
        seen = store.begin_head(path)()
        assert seen.info == store.head(path)
        assert seen.store_time is not None
    proxy.inject(_ingress("HEAD"))
    seen = store.begin_head("missing")()
    assert seen.info is None
    assert seen.store_time is not None
    proxy.inject(_ingress("HEAD"))
    proxy.inject(_ingress("GET", times=3))
    with pytest.raises(Unavailable):
        store.begin_head("there")()
    proxy.inject(_ingress("HEAD", times=4))
    with pytest.raises(Unavailable, match="HEAD"):
        store.begin_head("there")()


@pytest.mark.parametrize("server", ["ministack", "seaweedfs", "juicefs"])
def test_a_head_with_a_request_id_costs_one_request(
    server: str, request: pytest.FixtureRequest, open_store: Opener
) -> None:
    """S3 and all of these servers send ``x-amz-request-id``."""
    running: Servers = request.getfixturevalue(server)
    with Proxy(running.endpoint_url) as proxy:
        store = open_store(running, endpoint_url=proxy.endpoint_url)
        assert store.begin_head("missing")().info is None
        assert [seen.partition(" ")[0] for seen in proxy.requests()] == ["HEAD"]


def test_a_bucket_in_another_region_is_a_configuration_error(ministack: Ministack) -> None:
    """The error has the region in the response of the service."""
    session = AwsSession(AwsOptions(**ministack.options))  # type: ignore[arg-type]
    clock = ManualClock()
    client = AwsClient(session, "s3", ministack.endpoint_url, clock=clock)
    bucket = Bucket("bucket", client, clock=clock, backoff=Backoff())
    answer = Response(301, {"x-amz-bucket-region": "eu-west-3"}, b"")
    fault = bucket.fault(S3Request("HEAD", "a"), answer)
    assert isinstance(fault, ConfigurationError) and "eu-west-3" in str(fault)


# -- many deletes ----------------------------------------------------------------------------------


def test_more_than_a_thousand_objects_are_deleted(store: S3Store, proxy: Proxy) -> None:
    """S3 deletes at most a thousand in one request, so there are two."""
    store.put("a/1100", b"")
    proxy.requests()
    assert store.delete_many(f"a/{number}" for number in range(1101)) == {}
    assert len(proxy.requests()) == 2
    assert not list(store.list())


def test_a_delete_that_failed_is_reported_with_its_path(
    ministack: Ministack, proxy: Proxy, open_store: Opener
) -> None:
    """Each object that the server could not delete has its own error."""
    rows = "".join(
        f"<Error><Key>p/{name}</Key><Code>{code}</Code><Message>why</Message></Error>"
        for name, code in (("a&amp;b", "AccessDenied"), ("c", "InternalError"))
    )
    body = f'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{rows}</DeleteResult>'
    store = open_store(ministack, "p", endpoint_url=proxy.endpoint_url)
    proxy.inject(ProxyFault(kind="POST", action="answer", status=200, body=body))
    failures = store.delete_many(["a&b", "c", "d"])
    assert {path: type(error) for path, error in failures.items()} == {
        "a&b": AccessDenied,
        "c": OutcomeUnknown,
    }


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ProxyFault(kind="POST", action="drop_response"), OutcomeUnknown),
        (ProxyFault(kind="POST", action="answer", status=200, body="<Odd/>"), OutcomeUnknown),
        (ProxyFault(kind="POST", action="answer", status=503, body=_error("SlowDown")), Unavailable),
    ],
    ids=["lost", "odd", "shed"],
)
def test_a_failed_bulk_deletion_is_reported_for_each_path(
    store: S3Store, proxy: Proxy, fault: ProxyFault, kind: type[CommitError]
) -> None:
    """After a failure of the whole request, any of its objects may still exist."""
    proxy.inject(fault)
    failures = store.delete_many(["a", "b"])
    assert {path: type(error) for path, error in failures.items()} == {"a": kind, "b": kind}


def test_servers_without_bulk_deletions_are_supported(store: S3Store, proxy: Proxy) -> None:
    """Without DeleteObjects, objects are deleted one by one."""
    for path in ("yes", "no"):
        store.put(path, b"")
    proxy.inject(ProxyFault(kind="POST", action="answer", status=501, body=_error("NotImplemented")))
    proxy.inject(
        ProxyFault(kind="DELETE", path="/no", action="answer", status=403, body=_error("AccessDenied"))
    )
    failures = store.delete_many(["yes", "no"])
    assert [info.path for info in store.list()] == ["no"]
    assert isinstance(failures.pop("no"), AccessDenied) and not failures


# -- large bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *((bytes, size) for size in (0, MIB, MIB + 1, 10 * MIB, 10 * MIB + 1)),
        *((kind, size) for kind in (bytearray, memoryview, io.BytesIO) for size in (MIB, 5 * MIB + 1)),
    ],
)
def test_bodies_of_any_size_and_kind_are_stored_completely(
    store: S3Store, kind: Callable[[bytes], Any], size: int
) -> None:
    """A body that is too large for one request is uploaded in parts, and is read back unchanged."""
    body = bytes(range(253)) * (size // 253 + 1)
    body = body[:size]
    store.put("a", kind(body), metadata={"commitlog-nonce": "n"}, content_type="text/plain")
    found = store.get("a")
    assert found.data == body and found.nonce == "n"
    in_parts = "-" in found.etag
    assert in_parts is (size > MIB)
    assert not list(store.list_staged())


class _Dribble(io.RawIOBase):
    """A file that returns few bytes at a time, like a pipe."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._left, 700_001)
        buffer[:count] = bytes(count)
        self._left -= count
        return count


def test_files_with_short_reads_are_read_to_their_end(store: S3Store) -> None:
    """A short read is not the end of a file."""
    store.put("a", _Dribble(6 * MIB))  # type: ignore[arg-type]
    assert store.head("a").size == 6 * MIB


def test_a_large_put_has_its_condition_and_expiry(store: S3Store) -> None:
    """They apply to the publishing. A refused put leaves no upload."""
    body, expiry = bytes(2 * MIB), RequestExpiry(int(time.time()), 60)
    etag = store.put("a", body, condition=IfAbsent(), expiry=expiry).etag
    with pytest.raises(AlreadyExists):
        store.put("a", body, condition=IfAbsent())
    with pytest.raises(PreconditionFailed):
        store.put("a", body, condition=IfMatch('"x"'))
    with pytest.raises(RequestExpired):
        store.put("a", body, expiry=RequestExpiry(int(time.time()) - 3600, 60))
    assert store.head("a").etag == etag
    assert not list(store.list_staged())


def test_a_large_put_with_an_unknown_outcome_keeps_its_upload(store: S3Store, proxy: Proxy) -> None:
    """The request without a response may still publish the upload, so it is not aborted."""
    proxy.inject(ProxyFault(kind="POST", path="uploadId", action="drop_request"))
    with pytest.raises(OutcomeUnknown):
        store.put("a", bytes(2 * MIB))
    assert [info.path for info in store.list_staged()] == ["a"]


def test_the_number_of_parallel_parts_is_limited(
    ministack: Ministack, proxy: Proxy, open_store: Opener
) -> None:
    """A writer waits for an early part before it buffers more than its limit."""
    store = open_store(ministack, endpoint_url=proxy.endpoint_url, part_size=5 * MIB, parallel_parts=1)
    proxy.inject(ProxyFault(kind="PUT", path="partNumber=1&", action="delay", seconds=0.3))
    with store.begin_stage("a") as writer:
        began = time.monotonic()
        writer.write(bytes(6 * MIB))
        writer.write(bytes(6 * MIB))
        assert time.monotonic() - began >= 0.3


def test_parts_are_repeated(store: S3Store, proxy: Proxy) -> None:
    """A part is invisible to readers, so a failed one is sent again."""
    proxy.inject(ProxyFault(kind="POST", path="uploads", action="drop_response"))
    proxy.inject(ProxyFault(kind="PUT", path="partNumber=1&", action="answer", status=503))
    proxy.inject(ProxyFault(kind="PUT", path="partNumber=2&", action="drop_response", times=2))
    staged = store.stage("a", bytes(11 * MIB))
    assert len(staged.parts) == 3
    store.publish(staged)
    assert store.head("a").size == 11 * MIB


@pytest.mark.parametrize("part", [1, 2, 3])
def test_an_upload_with_a_failed_part_is_aborted(store: S3Store, proxy: Proxy, part: int) -> None:
    """The writer gets the error, at the latest when it finishes, and no upload is left."""
    refusal = ProxyFault(
        kind="PUT", path=f"partNumber={part}&", action="answer", status=403, body=_error("AccessDenied")
    )
    proxy.inject(refusal)
    with pytest.raises(AccessDenied):
        store.stage("a", bytes(11 * MIB))
    assert not list(store.list_staged())


def test_a_failed_abort_does_not_hide_the_first_error(store: S3Store, proxy: Proxy) -> None:
    """The client gets the error that ended the upload."""
    proxy.inject(ProxyFault(kind="DELETE", action="answer", status=403, body=_error("AccessDenied")))

    def fail() -> None:
        with store.begin_stage("a") as writer:
            writer.write(b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_failed_abort_without_another_error_is_reported(store: S3Store, proxy: Proxy) -> None:
    """The client gets an error, because an upload is left."""
    proxy.inject(ProxyFault(kind="DELETE", action="answer", status=403, body=_error("AccessDenied")))
    with pytest.raises(AccessDenied), store.begin_stage("a"):
        pass


def test_an_abort_without_a_response_has_an_unknown_outcome(store: S3Store, proxy: Proxy) -> None:
    """An earlier attempt may have removed the upload."""
    staged = store.stage("a", b"x")
    proxy.inject(ProxyFault(kind="DELETE", action="drop_response", times=3))
    with pytest.raises(OutcomeUnknown):
        store.abort(staged)
    assert not list(store.list_staged())


def test_all_pages_of_uploads_are_listed(store: S3Store, ministack: Ministack) -> None:
    """This holds for any number of uploads."""
    for number in range(1002):
        store.begin_stage(f"a/{number:04}")
    assert [info.path for info in store.list_staged("a/")] == [f"a/{n:04}" for n in range(1002)]


@pytest.mark.parametrize("length", ["12, 12", "-1", "1_000", "twelve"])
def test_an_invalid_length_is_unavailable(length: str) -> None:
    """A proxy may corrupt headers, so they say nothing about the object."""
    with pytest.raises(Unavailable, match="length"):
        object_info("a", {"etag": "e", "content-length": length})
