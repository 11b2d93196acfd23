"""URLs: what they mean, that they round-trip, that they keep secrets, that hostile ones are refused."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.errors import CommitError, ConfigurationError, InvalidPath
from commitlog.urls import SECRET_OPTIONS, Url, check_endpoint, parse_store_url, parse_table_url

Parse = Callable[[str], Url]

_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
_SEGMENT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/"), min_size=1, max_size=8
).filter(lambda segment: segment not in (".", ".."))
_PREFIX = st.lists(_SEGMENT, max_size=3).map("/".join)
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "endpoint_url": st.sampled_from(
            ["http://127.0.0.1:1/", "https://s3.example.org", "http://[::1]:80"]
        ),
        "region": _TEXT,
        "profile": _TEXT,
        "secret_access_key": st.just("hidden+/=&?#%"),
        "session_token": st.just("hidden too"),
    },
)
_NAME = _SEGMENT.filter(lambda name: "@" not in name)
_STORES = st.one_of(
    st.builds(Url, scheme=st.just("memory"), name=st.just("") | _NAME, prefix=_PREFIX),
    st.builds(
        Url,
        scheme=st.just("s3"),
        name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{1,20}", fullmatch=True),
        prefix=_PREFIX,
        options=_OPTIONS,
    ),
    st.builds(Url, scheme=st.just("file"), name=_PREFIX.map("/{}".format)),
)
_TABLES = st.one_of(
    st.builds(Url, scheme=st.just("memory"), name=st.just("") | _NAME),
    st.builds(
        Url,
        scheme=st.just("dynamodb"),
        name=st.from_regex(r"[A-Za-z0-9_.-]{3,20}", fullmatch=True),
        options=_OPTIONS,
    ),
    st.builds(Url, scheme=st.just("sqlite"), name=_PREFIX.map("/{}".format)),
)
_HOSTILE = st.builds(
    "{}{}{}".format,
    st.sampled_from(
        ["s3://", "file://", "memory://", "dynamodb://", "sqlite:///", "file:", "S3:", "~", "x://"]
    ),
    st.text(st.sampled_from("ab/.?=&%@:~#\\ \x00\n\ud800ü2Ff"), max_size=15),
    st.sampled_from(
        ["", "?endpoint_url=http://[", "?endpoint_url=http://h:x", "?region=%ff", "%ff", "?a", "?"]
    ),
)


def _shown(url: Url) -> Url:
    return evolve(url, options={k: v for k, v in url.options.items() if k not in SECRET_OPTIONS})


@given(_STORES)
def test_a_store_url_round_trips(url: Url) -> None:
    """What a store's URL is shown as opens the same store, but for the secrets."""
    again = parse_store_url(str(url))
    assert again == _shown(url)
    assert str(again) == str(url)


@given(_TABLES)
def test_a_table_url_round_trips(url: Url) -> None:
    """What a table's URL is shown as opens the same table, but for the secrets."""
    again = parse_table_url(str(url))
    assert again == _shown(url)
    assert str(again) == str(url)


@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
@given(url=_HOSTILE)
@example(url="~\x00")
@example(url="file://host/x")
def test_a_hostile_url_is_parsed_or_refused(parse: Parse, url: str) -> None:
    """Any string gives a URL that can be shown and parsed again, or an error of this library."""
    try:
        parsed = parse(url)
    except (ConfigurationError, InvalidPath):
        return
    assert parse(str(parsed)) == _shown(parsed)


@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
@pytest.mark.parametrize("url", [None, 3, b"memory://", ""])
def test_what_is_no_text_is_refused(parse: Parse, url: str) -> None:
    """Another type than str, and the empty string, are `ConfigurationError`."""
    with pytest.raises(ConfigurationError):
        parse(url)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/data/lake", "/data/lake"),
        ("file:///data/lake/", "/data/lake"),
        ("file:/data/lake", "/data/lake"),
        ("FILE:///data/a%20b%3Fc", "/data/a b?c"),
        ("/data/a?b", "/data/a?b"),
        ("/data/x://y", "/data/x:/y"),
        ("//data//x/../lake", "/data/lake"),
        ("lake", os.path.abspath("lake")),
        ("~/lake", os.path.expanduser("~/lake")),
    ],
)
def test_a_directory_is_named_in_several_ways(url: str, name: str) -> None:
    """A file URL, Hadoop's short form of it, and a plain path mean the same absolute directory."""
    assert parse_store_url(url) == Url(scheme="file", name=name)


def test_s3a_is_another_name_for_s3() -> None:
    """Spark's scheme opens the same store, and one slash at the end means nothing."""
    assert parse_store_url("s3a://bucket/a/b/") == Url(scheme="s3", name="bucket", prefix="a/b")


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host/x", "s3://", "s3:///x", "s3:bucket/x", "s3:/bucket/x", "s3://b", "s3://a!b"),
        *(
            "s3://bucket?colour=red",
            "s3://bucket?region",
            "s3://bucket?region=a&region=b",
            "s3://bucket/%ff",
        ),
        *(
            "file://relative/path",
            "file:relative",
            "file:///x?y=1",
            "memory://x?y=1",
            "/nul\x00",
            "\ud800",
        ),
        *("s3://bucket?endpoint_url=bucket.example.org", "s3://bucket?endpoint_url=http://u:p@h"),
    ],
)
def test_a_wrong_store_url_is_refused(url: str) -> None:
    """A URL that could only be meant otherwise raises `ConfigurationError` instead of being repaired."""
    with pytest.raises(ConfigurationError):
        parse_store_url(url)


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("abfss://container@account.dfs.core.windows.net/a", "Azure Storage"),
        ("WASBS://container@account.blob.core.windows.net/a", "Azure Storage"),
        ("az://container/a", "Azure Storage"),
        ("gs://bucket/a", "Google Cloud Storage"),
        ("hdfs://namenode:8020/a", "HDFS"),
        ("hdfs:/a", "HDFS"),
        ("oss://bucket/a", "Alibaba Cloud Object Storage"),
        ("swift://container.service/a", "OpenStack Swift"),
    ],
)
@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
def test_a_service_that_is_not_supported_is_named(parse: Parse, url: str, service: str) -> None:
    """The error speaks of the service, whatever else is in the URL, and shows nothing of that."""
    with pytest.raises(ConfigurationError, match=f"{service} is not supported") as refused:
        parse(url)
    assert "credentials" not in str(refused.value)
    assert "account" not in str(refused.value)


@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
def test_credentials_do_not_hide_a_scheme_that_is_unknown(parse: Parse) -> None:
    """A URL of another kind may have '@': that it is of another kind is what is wrong with it."""
    with pytest.raises(ConfigurationError, match="scheme must be") as refused:
        parse("postgres://user:geheim@host/db")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["s3://bucket//x", "s3://bucket/a//b", "memory://m/a/../b", "s3://bucket/x//"]
)
def test_a_prefix_that_no_path_has_is_refused(url: str) -> None:
    """A prefix is refused rather than repaired, for two spellings would mean two leases."""
    with pytest.raises(InvalidPath):
        parse_store_url(url)


@pytest.mark.parametrize(
    "url",
    [
        *("s3://bucket", "dynamodb://t!", "dynamodb://ab", "sqlite://x.db", "sqlite:x.db", "commits"),
        *(
            "dynamodb://table?addressing_style=path",
            "sqlite:///x?y=1",
            "memory://x?y=1",
            "dynamodb://a/b/c",
        ),
    ],
)
def test_a_wrong_table_url_is_refused(url: str) -> None:
    """A URL that names no table raises `ConfigurationError`."""
    with pytest.raises(ConfigurationError):
        parse_table_url(url)


@example(endpoint="http://user:1/2@host")
@given(st.text(st.sampled_from("htps:/@.[]%?#:x0 9\n\ud800"), max_size=20).map("http://{}".format))
def test_an_endpoint_is_taken_unchanged_or_refused(endpoint: str) -> None:
    """Any string is returned as it is, or raises `ConfigurationError`."""
    try:
        assert check_endpoint(endpoint) == endpoint
    except ConfigurationError:
        return
    assert not set(endpoint) & set("@?# \n")


@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
@pytest.mark.parametrize(
    "form",
    [
        "{0}://AKIA:{1}@name/x",
        "{0}://AKIA%3A{1}%40name/x",
        "{0}://name?secret_access_key={1}&secret_access_key={1}",
        "{0}://name?secret_access_key={1}&colour=red",
        "{0}://name?secret_access_key={1}&endpoint_url=http://AKIA:{1}@host",
        "{0}://name?secret_access_key={1}&%ff",
        "{0}://name?session_token={1}&access_key_id={1}",
        "{0}:name?secret_access_key={1}",
        "{0}://?secret_access_key={1}",
    ],
)
@pytest.mark.parametrize("scheme", ["s3", "dynamodb", "memory", "file", "sqlite"])
def test_a_secret_is_never_shown(parse: Parse, form: str, scheme: str) -> None:
    """Neither text and representation of a URL nor the error about it contain a secret."""
    word = "wJalrXUtnFEMI"
    shown: list[str] = []
    try:
        url = parse(form.format(scheme, word))
        shown += [str(url), repr(url)]
    except CommitError as error:
        shown.append(str(error))
    assert not [text for text in shown if word in text]


def test_options_given_in_the_call_replace_those_of_the_url() -> None:
    """`with_options` takes what is not None, keeps the rest, and refuses what no service has."""
    url = parse_store_url("s3://bucket?region=here&profile=p").with_options(
        {"region": "there", "profile": None}
    )
    assert dict(url.options) == {"region": "there", "profile": "p"}
    for wrong in ({"colour": "red"}, {"endpoint_url": "nowhere"}):
        with pytest.raises(ConfigurationError):
            url.with_options(wrong)


def test_a_url_can_be_pickled() -> None:
    """It may travel to other processes, with its options."""
    url = parse_store_url("s3://bucket/a?region=here")
    copy = pickle.loads(pickle.dumps(url))
    assert (copy, dict(copy.options)) == (url, {"region": "here"})
