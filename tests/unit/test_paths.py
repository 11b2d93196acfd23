"""Paths: a valid path is returned unchanged, and any other raises `InvalidPath` and no other error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import InvalidPath
from commitlog.paths import MAX_PATH_BYTES, check_path, check_prefix, join

_CHARACTERS = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/")
SEGMENTS = st.text(_CHARACTERS, min_size=1, max_size=12).filter(
    lambda segment: segment not in (".", "..")
)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=6).map("/".join)
HOSTILE = st.text(st.sampled_from("a./\\\x00\n\x7fü\ud800%~ "), max_size=12)


@given(PATHS)
def test_a_path_of_plain_segments_comes_back_unchanged(path: str) -> None:
    """A path whose segments are neither empty nor dots is accepted."""
    assert check_path(path) == path


@given(HOSTILE)
def test_a_hostile_path_is_taken_unchanged_or_refused(path: str) -> None:
    """Any string is returned unchanged or raises `InvalidPath`. An accepted path is below the root."""
    try:
        assert check_path(path) == path
    except InvalidPath:
        return
    assert not set(path.split("/")) & {"", ".", ".."}
    path.encode()


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/../b", "../a"),
        *("a\x00b", "a\nb", "\x7f", "\ud800", "é" * 513, 3, None, b"a"),
    ],
)
def test_a_path_that_no_store_keeps_is_refused(path: str) -> None:
    """Empty, absolute, dotted, undecodable, overlong paths and other types are `InvalidPath`."""
    with pytest.raises(InvalidPath):
        check_path(path)


def test_the_longest_path_is_measured_in_bytes() -> None:
    """The limit counts bytes of UTF-8, and the limit itself is allowed."""
    longest = "é" * (MAX_PATH_BYTES // 2)
    assert check_path(longest) == longest
    with pytest.raises(InvalidPath, match="1025 bytes"):
        check_path(longest + "x")


@given(PATHS, st.data())
def test_every_start_of_a_path_is_a_prefix(path: str, data: st.DataObject) -> None:
    """Every start of a valid path can be listed."""
    cut = data.draw(st.integers(0, len(path)))
    assert check_prefix(path[:cut]) == path[:cut]


@given(HOSTILE)
def test_a_hostile_prefix_is_taken_only_if_a_path_can_start_with_it(prefix: str) -> None:
    """A prefix is allowed if and only if some path begins with it."""
    try:
        check_path(prefix + "x")
    except InvalidPath:
        with pytest.raises(InvalidPath):
            check_prefix(prefix)
    else:
        assert check_prefix(prefix) == prefix


@given(PATHS, PATHS)
def test_joined_paths_keep_both_parts(prefix: str, path: str) -> None:
    """`join` puts one slash between the parts, even after a slash, and none if the prefix is empty."""
    assert join(prefix, path) == join(prefix + "/", path) == f"{prefix}/{path}"
    assert join("", path) == path
    assert check_path(join(prefix, path))
