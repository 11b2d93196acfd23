"""The filter of names."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import example, given, strategies

from commitlog.errors import ConfigurationError
from commitlog.ingest import IngestSettings, PathFilter


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.json", ["a.json", ".json"], ["a/b.json", "a.jsonl"]),
        ("**/*.json", ["a.json", "a/b/c.json"], ["a.csv"]),
        ("a/**", ["a/b", "a/b/c"], ["ab", "b/a/c"]),
        ("a**/b", ["a/b", "ax/b", "a/x/b"], ["ab", "axb"]),
        ("{**/a,**/b}", ["a", "x/y/b"], ["xa"]),
        ("a?c", ["abc", "aüc"], ["a/c", "ac"]),
        ("[a-c]1", ["a1", "c1"], ["d1", "/1", "-1"]),
        ("[!a-c]1", ["d1"], ["a1", "/1"]),
        ("[]a]", ["]", "a"], ["[]a]"]),
        ("[---]", ["-"], ["a"]),
        ("[+--]", ["+", ",", "-"], ["a"]),
        ("[&&a||b~~]", ["&", "|", "~", "a", "b"], ["c"]),
        ("{a,b/c}.{x,y}", ["a.x", "b/c.y"], ["a.z", "{a,b/c}.x"]),
        (r"a\*b", ["a*b"], ["axb"]),
        ("a,b}.c+(d)|e^$", ["a,b}.c+(d)|e^$"], ["a"]),
    ],
)
def test_globs_match_as_in_hadoop(glob: str, yes: list[str], no: list[str]) -> None:
    """In addition, ``**`` matches any depth."""
    names = PathFilter(glob=glob, hidden=True)
    assert [name for name in yes if not names.wants(name)] == []
    assert [name for name in no if names.wants(name)] == []


@example("[---]", "-")
@example("[--a]", "a")
@given(strategies.text("ab*?[]!-", max_size=8), strategies.text("ab-", min_size=1, max_size=5))
def test_globs_of_names_match_as_in_the_shell(glob: str, name: str) -> None:
    """This holds for globs without slashes, braces and ``**``."""
    if "**" in glob or fnmatch.translate(glob).count("[") != glob.count("["):
        return
    try:
        wanted = PathFilter(glob=glob).wants(name)
    except ConfigurationError:
        return
    if "--" not in glob and "[]" not in glob and "[!]" not in glob and "[-" not in glob:
        assert wanted == fnmatch.fnmatchcase(name, glob)


def test_hidden_names_are_left_out_by_default() -> None:
    """A segment that begins with a dot or an underscore hides all paths below it, except partitions."""
    hidden = ["_SUCCESS", ".crc", "a/_commitlog/b", "a/.x/b"]
    assert not any(PathFilter().wants(name) for name in hidden)
    assert all(PathFilter(hidden=True).wants(name) for name in hidden)
    assert PathFilter().wants("_date=1/a")
    assert not PathFilter(hidden=True).wants("directory/")


def test_a_name_matches_the_last_segment() -> None:
    """`name` matches only the last segment, and can be combined with `glob`."""
    assert PathFilter(name="*.csv").wants("a/b/c.csv")
    assert not PathFilter(name="*.csv", glob="x/*").wants("a/c.csv")


@pytest.mark.parametrize("glob", ["[a", "{a", "[b-a]", "{" * 5000 + "}" * 5000], ids=range(4))
def test_invalid_globs_are_refused(glob: str) -> None:
    """An invalid glob is an error at once."""
    with pytest.raises(ConfigurationError, match="glob"):
        PathFilter(glob=glob)


def test_the_start_of_a_glob_narrows_the_listing() -> None:
    """The listed prefix ends before the first special character of the glob."""
    settings = IngestSettings(source="s", prefix="in/", names=PathFilter(glob="2026/a*/x"))
    assert settings.listed_prefix == "in/2026/a"
    special = ("*", "?", "[x]", "{x,y}", "\\*")
    assert {PathFilter(glob=f"2026/a{each}").literal for each in special} == {"2026/a"}


@pytest.mark.parametrize("wrong", [{"glob": "\ud800"}, {"name": 7}, {"hidden": "no"}], ids=range(3))
def test_a_filter_that_cannot_be_stored_is_refused(wrong: dict[str, Any]) -> None:
    """The settings of a query are stored for operators, who could not read them."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        PathFilter(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": " "},
        {"source": "../x"},
        {"source": "ü" * 300},
        {"source": "\ud800"},
        {"max_files": 0},
        {"max_files": 100_001},
        {"max_bytes": 0},
        {"starting_from": "yesterday"},
        {"grace": -1},
        {"max_file_age": float("nan")},
        {"remember": "some"},
        {"changed": "ignore"},
        {"changed": "maybe"},
        {"missing": "again"},
        {"unreadable": "skip"},
        {"keep_epochs": 1},
        {"list_limit": 0},
        {"slice_bytes": 0},
        {"prefix": "/a"},
        *(
            {name: 7.5}
            for name in ("max_files", "max_bytes", "list_limit", "slice_bytes", "keep_epochs")
        ),
        {"max_files": "7"},
        {"max_bytes": 2**63},
        {"ordered": "no"},
        {"grace": 2**64},
        {"starting_from": 2**64},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(wrong: dict[str, object]) -> None:
    """Each invalid value is a configuration error."""
    with pytest.raises(ConfigurationError if "prefix" not in wrong else ValueError):
        IngestSettings(**{"source": "s", **wrong})  # type: ignore[arg-type]
