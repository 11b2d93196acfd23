"""`CommitlogNamespace` with Lance itself, over a directory."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import botocore.session
import lance
import lance_namespace as protocol
import pyarrow
import pytest

from commitlog.errors import CommitError, ConfigurationError, OutcomeUnknown, Unavailable
from commitlog.lance import CommitlogNamespace
from commitlog.lance.storage_options import LanceStorage
from commitlog.lance.versions import TableVersions
from commitlog.testing import ManualClock
from commitlog.urls import parse_store_url

ROWS = pyarrow.table({"number": [1, 2, 3]})


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[CommitlogNamespace]:
    """A namespace in a directory whose name has a space."""
    with CommitlogNamespace(str(tmp_path / "a lake")) as opened:
        yield opened


@pytest.fixture
def table(namespace: CommitlogNamespace) -> dict[str, Any]:
    """The arguments of Lance for a table with three rows."""
    found = {"namespace_client": namespace, "table_id": ["events"]}
    lance.write_dataset(ROWS, **found)
    return found


def count(table: dict[str, Any]) -> int:
    """Return the number of rows."""
    found: int = lance.dataset(**table).count_rows()
    return found


def uri_of(table: dict[str, Any]) -> str:
    """Return the URI of a table."""
    request = protocol.DescribeTableRequest(id=table["table_id"])
    return str(table["namespace_client"].describe_table(request).location)


def test_lance_writes_and_reads_through_it(
    table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation that commits creates its version here; readers need no namespace."""
    created: list[int] = []
    create = TableVersions.create

    def spy(self: TableVersions, version: int, *arguments: Any, **options: Any) -> Any:
        created.append(version)
        return create(self, version, *arguments, **options)

    monkeypatch.setattr(TableVersions, "create", spy)
    lance.write_dataset(ROWS, mode="append", **table)
    dataset = lance.dataset(**table)
    dataset.delete("number = 1")
    dataset.update({"number": "9"}, where="number = 2")
    dataset.merge_insert("number").when_not_matched_insert_all().execute(pyarrow.table({"number": [4]}))
    dataset.add_columns({"twice": "number * 2"})
    dataset.create_scalar_index("number", "BTREE")
    lance.write_dataset(ROWS, mode="overwrite", **table)
    assert created == [2, 3, 4, 5, 6, 7, 8]
    assert lance.dataset(uri_of(table)).count_rows() == count(table) == 3
    assert lance.dataset(version=3, **table).count_rows() == 4
    assert not list(Path(uri_of(table)).glob("_versions/*.manifest-*"))


def test_compaction_and_cleanup_work(table: dict[str, Any]) -> None:
    """Compaction is a commit; clean-up keeps the latest version, and later commits go on."""
    for _ in range(3):
        lance.write_dataset(ROWS, mode="append", **table)
    dataset = lance.dataset(**table)
    dataset.optimize.compact_files()
    assert len(lance.dataset(**table).get_fragments()) == 1
    stats = lance.dataset(**table).cleanup_old_versions(timedelta(0))
    assert stats.old_versions > 0
    assert len(lance.dataset(**table).versions()) == 1
    lance.write_dataset(ROWS, mode="append", **table)
    assert count(table) == 15


def test_a_stale_reader_commits_on_top_of_the_latest(table: dict[str, Any]) -> None:
    """Also after a clean-up has removed the version that follows its own."""
    stale = lance.dataset(**table)
    for _ in range(3):
        lance.write_dataset(ROWS, mode="append", **table)
    lance.dataset(**table).cleanup_old_versions(timedelta(0))
    stale.delete("number = 1")
    assert count(table) == 11


def test_branches_and_tags_work(table: dict[str, Any]) -> None:
    """A branch has its own versions, which are created here, too."""
    dataset = lance.dataset(**table)
    dataset.tags.create("first", dataset.version)
    branch = dataset.create_branch("dev")
    lance.write_dataset(ROWS, branch, mode="append")
    assert count(table) == 3
    assert dataset.checkout_version(("dev", None)).count_rows() == 6
    request = protocol.ListTableVersionsRequest(id=["events"], branch="dev")
    assert len(table["namespace_client"].list_table_versions(request).versions) == 2


def test_a_table_that_was_only_declared_is_written_later(namespace: CommitlogNamespace) -> None:
    """A writer that died before its first version leaves such a table."""
    namespace.declare_table(protocol.DeclareTableRequest(id=["t"]))
    describe = protocol.DescribeTableRequest(id=["t"], check_declared=True)
    assert namespace.describe_table(describe).is_only_declared
    table = {"namespace_client": namespace, "table_id": ["t"]}
    with pytest.raises(protocol.TableAlreadyExistsError):
        lance.write_dataset(ROWS, mode="create", **table)
    lance.write_dataset(ROWS, mode="append", **table)
    assert count(table) == 3
    assert not namespace.describe_table(describe).is_only_declared


@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), Unavailable("down")], ids=repr)
def test_lance_does_not_repeat_a_commit_that_may_have_happened(
    table: dict[str, Any],
    error: CommitError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It reports an unknown result, and removes nothing; the log has the error itself."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "commitlog"):
        patch.setattr(TableVersions, "create", fail)
        with pytest.raises(OSError, match="is unknown"):
            lance.write_dataset(ROWS, mode="append", **table)
    assert str(error) in caplog.text
    assert len(list(Path(uri_of(table)).glob("_versions/*.manifest-*"))) == 1
    assert count(table) == 3


def test_a_lost_answer_that_landed_is_neither_a_conflict_nor_a_duplicate(
    table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if this library could not tell, Lance finds its own transaction in the version."""
    create = TableVersions.create

    def lose(self: TableVersions, *arguments: Any, **options: Any) -> Any:
        create(self, *arguments, **options)
        raise OutcomeUnknown("lost")

    monkeypatch.setattr(TableVersions, "create", lose)
    lance.write_dataset(ROWS, mode="append", **table)
    assert count(table) == 6
    assert lance.dataset(**table).version == 2


def test_an_existing_dataset_is_registered(namespace: CommitlogNamespace, tmp_path: Path) -> None:
    """By its URI; the dataset is not copied, and can be taken out again."""
    uri = str(tmp_path / "a lake/old.lance")
    lance.write_dataset(ROWS, uri)
    register = protocol.RegisterTableRequest(id=["old"], location=uri)
    for same in (Path(uri).as_uri(), "old.lance/", uri):
        again = protocol.RegisterTableRequest(id=["same"], location=same)
        assert namespace.register_table(again).location == uri
        namespace.deregister_table(protocol.DeregisterTableRequest(id=["same"]))
    assert namespace.register_table(register).location == uri
    table = {"namespace_client": namespace, "table_id": ["old"]}
    lance.write_dataset(ROWS, mode="append", **table)
    assert count(table) == lance.dataset(uri).count_rows() == 6
    with pytest.raises(protocol.TableAlreadyExistsError):
        namespace.register_table(register)
    namespace.deregister_table(protocol.DeregisterTableRequest(id=["old"]))
    with pytest.raises(protocol.TableNotFoundError):
        lance.dataset(**table)
    assert lance.dataset(uri).count_rows() == 6
    for wrong in (str(tmp_path), "none.lance", "s3://bucket/t.lance", "file:///t.lance", "file://h/x"):
        with pytest.raises(protocol.InvalidInputError):
            namespace.register_table(protocol.RegisterTableRequest(id=["x"], location=wrong))


@pytest.mark.parametrize("by", ["itself", "another client"])
def test_a_dropped_table_takes_no_commit_of_an_earlier_reader(
    table: dict[str, Any], tmp_path: Path, by: str
) -> None:
    """Its successor of the same name is another table, in another directory."""
    earlier, uri = lance.dataset(**table), uri_of(table)
    with CommitlogNamespace(str(tmp_path / "a lake")) as other:
        client = other if by == "another client" else table["namespace_client"]
        client.drop_table(protocol.DropTableRequest(id=["events"]))
        assert not Path(uri).exists()
        with pytest.raises(OSError):
            earlier.delete("number = 1")
        lance.write_dataset(ROWS, **{**table, "namespace_client": client})
        with pytest.raises(OSError):
            earlier.insert(ROWS)
    assert uri_of(table) != uri
    assert count(table) == 3


def test_namespaces_and_tables_are_listed_in_pages(namespace: CommitlogNamespace) -> None:
    """The token of a page is that of the next one."""
    for name in ("b", "a", "c"):
        namespace.create_namespace(protocol.CreateNamespaceRequest(id=[name]))
    for names in (["a", "c"], ["a", "b"], ["a"]):
        namespace.declare_table(protocol.DeclareTableRequest(id=names))
    first = namespace.list_namespaces(protocol.ListNamespacesRequest(id=[], limit=2))
    assert first.namespaces == ["a", "b"]
    rest = protocol.ListNamespacesRequest(id=[], limit=2, page_token=first.page_token)
    assert namespace.list_namespaces(rest).namespaces == ["c"]
    assert namespace.list_namespaces(rest).page_token is None
    assert namespace.list_tables(protocol.ListTablesRequest(id=["a"])).tables == ["b", "c"]
    assert namespace.list_tables(protocol.ListTablesRequest(id=[])).tables == ["a"]
    namespace.namespace_exists(protocol.NamespaceExistsRequest(id=["a"]))
    with pytest.raises(protocol.NamespaceNotEmptyError):
        namespace.drop_namespace(protocol.DropNamespaceRequest(id=["a"]))
    namespace.drop_namespace(protocol.DropNamespaceRequest(id=["b"]))
    namespace.drop_namespace(protocol.DropNamespaceRequest(id=["b"], mode="Skip"))
    with pytest.raises(protocol.NamespaceNotFoundError):
        namespace.describe_namespace(protocol.DescribeNamespaceRequest(id=["b"]))


def test_versions_are_listed_and_described(table: dict[str, Any]) -> None:
    """The latest first, with the paths that Lance uses."""
    namespace = table["namespace_client"]
    for _ in range(2):
        lance.write_dataset(ROWS, mode="append", **table)
    request = protocol.ListTableVersionsRequest(id=["events"], descending=True, limit=2)
    first = namespace.list_table_versions(request)
    assert [each.version for each in first.versions] == [3, 2]
    request = protocol.ListTableVersionsRequest(id=["events"], limit=2, page_token=first.page_token)
    assert [each.version for each in namespace.list_table_versions(request).versions] == [1]
    found = namespace.describe_table_version(protocol.DescribeTableVersionRequest(id=["events"]))
    assert found.version == first.versions[0]
    assert Path("/", found.version.manifest_path).stat().st_size == found.version.manifest_size
    with pytest.raises(protocol.TableVersionNotFoundError):
        namespace.describe_table_version(protocol.DescribeTableVersionRequest(id=["events"], version=9))
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(version=9, **table)
    fields = {"id": ["events"], "ranges": [{"start_version": 0, "end_version": 3}]}
    delete = protocol.BatchDeleteTableVersionsRequest.from_dict(fields)
    assert namespace.batch_delete_table_versions(delete).deleted_count == 2
    delete.ranges[0].end_version = -1
    with pytest.raises(protocol.UnsupportedOperationError, match="is the latest"):
        namespace.batch_delete_table_versions(delete)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (
            lambda it: it.table_exists(protocol.TableExistsRequest(id=["none"])),
            protocol.TableNotFoundError,
        ),
        (
            lambda it: it.declare_table(protocol.DeclareTableRequest(id=["no", "t"])),
            protocol.NamespaceNotFoundError,
        ),
        (
            lambda it: it.declare_table(protocol.DeclareTableRequest(id=["a/b"])),
            protocol.InvalidInputError,
        ),
        (
            lambda it: it.declare_table(protocol.DeclareTableRequest(id=["t"], location="/x")),
            protocol.InvalidInputError,
        ),
        (
            lambda it: it.create_namespace(protocol.CreateNamespaceRequest(id=["a"], mode="Overwrite")),
            protocol.UnsupportedOperationError,
        ),
        (
            lambda it: it.rename_table(protocol.RenameTableRequest(id=["a"], new_table_name="b")),
            protocol.UnsupportedOperationError,
        ),
    ],
)
def test_errors_are_those_of_the_protocol(
    namespace: CommitlogNamespace, call: Callable[[CommitlogNamespace], object], kind: type[Exception]
) -> None:
    """With the error of this library as their cause, where there is one."""
    with pytest.raises(kind):
        call(namespace)


def test_lance_opens_it_by_its_class(tmp_path: Path) -> None:
    """From properties, which are texts."""
    properties = {"root": str(tmp_path), "storage.timeout": "5s"}
    opened = protocol.connect("commitlog.lance.CommitlogNamespace", properties)
    assert isinstance(opened, CommitlogNamespace)
    table = {"namespace_client": opened, "table_id": ["t"]}
    lance.write_dataset(ROWS, **table)
    assert count(table) == 3
    opened.close()


# -- options -----------------------------------------------------------------------------------------

S3 = "s3://bucket/lake?endpoint_url=http://127.0.0.1:9&region=eu-west-1"
KEYS = {"access_key_id": "AKIA", "secret_access_key": "hidden", "session_token": "passing"}


def test_lance_gets_endpoint_region_and_credentials() -> None:
    """The names are those of the crate ``object_store``."""
    storage = LanceStorage(
        parse_store_url(S3).with_options(KEYS), clock=ManualClock(), extra={"timeout": "5s"}
    )
    assert storage.uri("t.lance") == "s3://bucket/lake/t.lance"
    assert storage.options() == {
        "allow_http": "true",
        "aws_access_key_id": "AKIA",
        "aws_endpoint": "http://127.0.0.1:9",
        "aws_region": "eu-west-1",
        "aws_secret_access_key": "hidden",
        "aws_session_token": "passing",
        "aws_virtual_hosted_style_request": "false",
        "timeout": "5s",
    }


@pytest.mark.parametrize(
    ("options", "conditional"),
    [
        ({}, None),
        ({"commit": "native"}, None),
        ({"table": "memory://leases"}, "disabled"),
        ({"commit": "lease", "table": "memory://leases"}, "disabled"),
        ({"table": "memory://leases", "storage.aws_conditional_put": "etag"}, "etag"),
    ],
)
def test_lance_writes_no_condition_itself_under_leases(
    options: dict[str, str], conditional: str | None
) -> None:
    """A pickled dataset would commit by its URI. The user may choose otherwise."""
    with CommitlogNamespace(S3, **KEYS, **options) as namespace:  # type: ignore[arg-type]
        assert namespace._storage.options().get("aws_conditional_put") == conditional


def test_credentials_that_a_session_refreshes_have_an_expiry() -> None:
    """So Lance asks for new ones in time."""
    session = botocore.session.Session()
    session.set_credentials(*KEYS.values())
    clock = ManualClock(epoch=1000.0)
    storage = LanceStorage(parse_store_url(S3), clock=clock, extra={}, session=session)
    options = storage.options()
    assert (options["aws_session_token"], options["expires_at_millis"]) == ("passing", "1600000")


def test_aws_itself_is_reached_by_host_names() -> None:
    """The bucket is part of the host name, as botocore chooses."""
    url = parse_store_url("s3://bucket?region=eu-west-1").with_options(KEYS)
    options = LanceStorage(url, clock=ManualClock(), extra={}).options()
    assert options["aws_endpoint"] == "https://bucket.s3.eu-west-1.amazonaws.com"
    assert options["aws_virtual_hosted_style_request"] == "true"
    assert "allow_http" not in options


def test_no_secret_is_shown_or_stored() -> None:
    """Neither in the id, by which Lance shares caches, nor in a record."""
    namespace = CommitlogNamespace(S3, **KEYS)
    assert not re.search("hidden|passing|AKIA", f"{namespace!r} {namespace.namespace_id()}")
    namespace.close()


def test_credentials_are_left_out_if_lance_has_its_own(tmp_path: Path) -> None:
    """As for a directory, which needs none."""
    with CommitlogNamespace(str(tmp_path)) as namespace:
        request = protocol.DeclareTableRequest(id=["t"], vend_credentials=False)
        assert namespace.declare_table(request).storage_options is None


def test_a_store_that_lance_cannot_reach_is_refused() -> None:
    """Such as memory of this process."""
    with pytest.raises(ConfigurationError, match="Lance cannot reach memory"):
        CommitlogNamespace("memory://x")
