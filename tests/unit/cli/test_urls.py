"""URLs of objects on the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import commitlog
from commitlog.cli import main
from commitlog.cli.urls import split, split_directory
from commitlog.errors import ConfigurationError, InvalidPath


def test_the_bucket_is_the_root() -> None:
    """An S3 URL is split after the bucket. Its query stays with the store."""
    place = split("s3://bucket/dir/key?endpoint_url=http://127.0.0.1:1&region=eu-west-1")
    assert str(place.store) == "s3://bucket?endpoint_url=http://127.0.0.1:1&region=eu-west-1"
    assert place.path == "dir/key"
    assert place.url == "s3://bucket/dir/key"


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(
        lambda text: all(part not in ("", ".", "..") for part in text.split("/"))
    )
)
def test_a_printed_url_names_the_same_object(path: str) -> None:
    """The URL that is printed for an object can be given to a command."""
    place = split("s3://bucket/x")
    assert split(place.url_of(path)).path == path


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/dir/", "memory://name"])
def test_an_object_requires_a_key(url: str) -> None:
    """A bucket or a directory is refused."""
    with pytest.raises(InvalidPath, match="does not name an object"):
        split(url)


@pytest.mark.parametrize("url", ["s3:/bucket/a", "S3:bucket/a", "https:/host/a"])
def test_a_url_without_slashes_is_not_a_local_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused. A local file with such a name can still be given."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="two slashes"):
        split(url)
    assert split(f"./{url}").store.scheme == "file"


@pytest.mark.parametrize("url", ["s3://bucket//a", "s3://bucket/a//b", "s3://bucket/a/../b"])
def test_invalid_keys_are_refused(url: str) -> None:
    """Keys with empty or dotted segments are not repaired."""
    with pytest.raises(InvalidPath):
        split(url)


def test_a_directory_is_printed_with_its_prefix() -> None:
    """Its store is opened below the root of the bucket, but the whole URL is printed."""
    place = split_directory("s3://bucket/a/out/?region=eu-west-1")
    assert (place.url, place.url_of("b c")) == ("s3://bucket/a/out/", "s3://bucket/a/out/b%20c")


def test_secrets_in_urls_are_refused() -> None:
    """The message does not contain them."""
    with pytest.raises(ConfigurationError, match="from the environment") as caught:
        split("s3://bucket/key?secret_access_key=hunter2")
    assert "hunter2" not in str(caught.value)


def make_store(directory: Path) -> None:
    """Make `directory` the root of a local store, as the first write does."""
    with commitlog.connect(directory.as_posix()) as store:
        store.put("first", b"")


@pytest.mark.parametrize(
    "words",
    [
        ["lock", "s3://bucket/a?secret_access_key=geheim", "--name", "a", "--", "true"],
        ["lock", "s3://me:geheim@bucket/a", "--name", "a", "--", "true"],
        ["lock", "dynamodb://table?secret_access_key=geheim", "--", "true"],
        ["get", "s3:bucket/a?secret_access_key=geheim", "a"],
        ["fs", "ls", "s3://bucket?secret_access_key=geheim"],
        ["fs", "ls", "--json", "s3://bucket?secret_access_key=geheim"],
    ],
    ids=" ".join,
)
def test_no_secret_is_in_the_message_of_a_wrong_url(words: list[str]) -> None:
    """Logs keep messages, and others read them."""
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert done.stderr and "geheim" not in done.output


def test_the_nearest_store_is_the_root(tmp_path: Path) -> None:
    """The root of a local file is the nearest directory above it with a store."""
    make_store(tmp_path / "lake")
    make_store(tmp_path)
    for scheme in ("", "file://", "file:"):
        place = split(f"{scheme}{tmp_path}/lake/dir/key")
        assert (place.store.name, place.path) == (f"{tmp_path}/lake", "dir/key")
    assert split(f"{tmp_path}/dir/key").path == "dir/key"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_of_another_user_in_a_sticky_directory_is_ignored(tmp_path: Path) -> None:
    """An index above the file in such a directory has to belong to this user or to root."""
    make_store(tmp_path)
    (tmp_path / "mine").mkdir()
    tmp_path.chmod(0o1777)
    assert split(f"{tmp_path}/mine/key").store.name == f"{tmp_path}"
    os.chown(tmp_path / ".commitlog", 12345, -1)
    assert split(f"{tmp_path}/mine/key").store.name == f"{tmp_path}/mine"


def test_the_root_option_names_a_new_root(tmp_path: Path) -> None:
    """It applies if there is no store yet."""
    place = split(f"{tmp_path}/lake/dir/key", root=f"{tmp_path}/lake")
    assert (place.store.name, place.path) == (f"{tmp_path}/lake", "dir/key")


def test_the_parent_is_the_default_root(tmp_path: Path) -> None:
    """Without a store above the file and without --root."""
    place = split(f"{tmp_path}/lake/key")
    assert (place.store.name, place.path) == (f"{tmp_path}/lake", "key")


def test_a_second_root_is_refused(tmp_path: Path) -> None:
    """A --root that contradicts the store on disk is not ignored."""
    make_store(tmp_path)
    with pytest.raises(ConfigurationError, match="leave --root out"):
        split(f"{tmp_path}/lake/key", root=f"{tmp_path}/lake")


def test_the_root_must_be_above_the_file(tmp_path: Path) -> None:
    """A --root next to the file is refused."""
    with pytest.raises(ConfigurationError, match="not above"):
        split(f"{tmp_path}/lake/key", root=f"{tmp_path}/other")


def test_relative_paths_start_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are paths without a leading slash."""
    monkeypatch.chdir(tmp_path)
    assert split("key").store.name == os.fspath(tmp_path)


def test_a_listed_directory_can_be_the_root(tmp_path: Path) -> None:
    """It is a root if it has a store, and otherwise a prefix that ends with a slash."""
    (tmp_path / "dir").mkdir()
    make_store(tmp_path)
    assert split(f"{tmp_path}", prefix=True).path == ""
    assert split(f"{tmp_path}/dir", prefix=True).path == "dir/"
    assert split(f"{tmp_path}/di", prefix=True).path == "di"


def test_an_undecodable_url_is_refused() -> None:
    """A percent-encoding that is not UTF-8 is not read as another key."""
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        split("s3://bucket/%ff")
