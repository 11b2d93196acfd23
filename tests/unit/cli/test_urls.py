"""What a URL on the command line points at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commitlog
from commitlog.cli.urls import split, split_directory
from commitlog.errors import ConfigurationError, InvalidPath


def test_bucket_is_root() -> None:
    """An S3 URL is cut behind the bucket, and its query stays with the store."""
    place = split("s3://bucket/dir/key?endpoint_url=http://127.0.0.1:1&region=eu-west-1")
    assert str(place.store) == "s3://bucket?endpoint_url=http://127.0.0.1:1&region=eu-west-1"
    assert place.path == "dir/key"
    assert place.url == "s3://bucket/dir/key"


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(
        lambda text: all(part not in ("", ".", "..") for part in text.split("/"))
    )
)
def test_printed_url_leads_back(path: str) -> None:
    """The URL printed for an object, given to a command, names the same object."""
    place = split("s3://bucket/x")
    assert split(place.url_of(path)).path == path


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/dir/", "memory://name"])
def test_object_needs_a_key(url: str) -> None:
    """A bucket or a directory is refused where an object is wanted."""
    with pytest.raises(InvalidPath, match="names no object"):
        split(url)


@pytest.mark.parametrize("url", ["s3:/bucket/a", "S3:bucket/a", "https:/host/a"])
def test_a_slip_in_a_url_makes_no_local_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can only be meant as a URL is refused; a local file of that name can still be given."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="two slashes"):
        split(url)
    assert split(f"./{url}").store.scheme == "file"


@pytest.mark.parametrize("url", ["s3://bucket//a", "s3://bucket/a//b", "s3://bucket/a/../b"])
def test_odd_keys_are_refused_not_repaired(url: str) -> None:
    """Keys with empty or dotted segments are refused, as the library does."""
    with pytest.raises(InvalidPath):
        split(url)


def test_a_directory_is_printed_with_its_prefix() -> None:
    """Its store is opened below the bucket's root, but what is printed is the whole URL."""
    place = split_directory("s3://bucket/a/out/?region=eu-west-1")
    assert (place.url, place.url_of("b c")) == ("s3://bucket/a/out/", "s3://bucket/a/out/b%20c")


def test_secrets_in_urls_are_refused_without_being_shown() -> None:
    """A URL with credentials is refused, and the message does not repeat them."""
    with pytest.raises(ConfigurationError, match="from the environment") as caught:
        split("s3://bucket/key?secret_access_key=hunter2")
    assert "hunter2" not in str(caught.value)


def make_store(directory: Path) -> None:
    """Make `directory` the root of a local store, as the first write does."""
    with commitlog.connect(directory.as_posix()) as store:
        store.put("first", b"")


def test_nearest_store_is_the_root(tmp_path: Path) -> None:
    """The root of a local file is the nearest directory above it that is a store already."""
    make_store(tmp_path / "lake")
    make_store(tmp_path)
    for scheme in ("", "file://", "file:"):
        place = split(f"{scheme}{tmp_path}/lake/dir/key")
        assert (place.store.name, place.path) == (f"{tmp_path}/lake", "dir/key")
    assert split(f"{tmp_path}/dir/key").path == "dir/key"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_that_another_user_put_into_a_directory_like_tmp_does_not_count(tmp_path: Path) -> None:
    """An index above the file in a directory with the sticky bit has to be of this user, or root's."""
    make_store(tmp_path)
    (tmp_path / "mine").mkdir()
    tmp_path.chmod(0o1777)
    assert split(f"{tmp_path}/mine/key").store.name == f"{tmp_path}"
    os.chown(tmp_path / ".commitlog", 12345, -1)
    assert split(f"{tmp_path}/mine/key").store.name == f"{tmp_path}/mine"


def test_root_option_names_a_new_root(tmp_path: Path) -> None:
    """Where there is no store yet, --root says where the store begins."""
    place = split(f"{tmp_path}/lake/dir/key", root=f"{tmp_path}/lake")
    assert (place.store.name, place.path) == (f"{tmp_path}/lake", "dir/key")


def test_parent_is_the_last_resort(tmp_path: Path) -> None:
    """Without a store above and without --root, the file's directory is the root."""
    place = split(f"{tmp_path}/lake/key")
    assert (place.store.name, place.path) == (f"{tmp_path}/lake", "key")


def test_second_root_is_refused(tmp_path: Path) -> None:
    """A --root that contradicts the store on disk is refused rather than ignored."""
    make_store(tmp_path)
    with pytest.raises(ConfigurationError, match="leave --root out"):
        split(f"{tmp_path}/lake/key", root=f"{tmp_path}/lake")


def test_root_must_be_above(tmp_path: Path) -> None:
    """A --root beside the file is refused."""
    with pytest.raises(ConfigurationError, match="not above"):
        split(f"{tmp_path}/lake/key", root=f"{tmp_path}/other")


def test_relative_paths_start_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a leading slash is relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    assert split("key").store.name == os.fspath(tmp_path)


def test_listed_directory_may_be_the_root(tmp_path: Path) -> None:
    """A directory to be listed is a root if it is a store, and a prefix ending in / below one."""
    (tmp_path / "dir").mkdir()
    make_store(tmp_path)
    assert split(f"{tmp_path}", prefix=True).path == ""
    assert split(f"{tmp_path}/dir", prefix=True).path == "dir/"
    assert split(f"{tmp_path}/di", prefix=True).path == "di"


def test_undecodable_url_is_refused() -> None:
    """A percent-encoding that is no UTF-8 is refused, rather than read as another key."""
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        split("s3://bucket/%ff")
