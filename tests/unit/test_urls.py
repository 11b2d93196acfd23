"""URLs: their meaning, their round trip, the secrecy of credentials, and the refusal of hostile ones."""

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
    """The text of a store's URL opens the same store. Secrets are left out."""
    again = parse_store_url(str(url))
    assert again == _shown(url)
    assert str(again) == str(url)


@given(_TABLES)
def test_a_table_url_round_trips(url: Url) -> None:
    """The text of a table's URL opens the same table. Secrets are left out."""
    again = parse_table_url(str(url))
    assert again == _shown(url)
    assert str(again) == str(url)


@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
@given(url=_HOSTILE)
@example(url="~\x00")
@example(url="file://host/x")
def test_a_hostile_url_is_parsed_or_refused(parse: Parse, url: str) -> None:
    """Any string gives a URL whose text can be parsed again, or an error of this library."""
    try:
        parsed = parse(url)
    except (ConfigurationError, InvalidPath):
        return
    assert parse(str(parsed)) == _shown(parsed)


@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
@pytest.mark.parametrize("url", [None, 3, b"memory://", ""])
def test_a_url_of_another_type_is_refused(parse: Parse, url: str) -> None:
    """A type other than str, and the empty string, raise `ConfigurationError`."""
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
def test_a_directory_has_several_spellings(url: str, name: str) -> None:
    """A file URL, Hadoop's short form of it, and a plain path mean the same absolute directory."""
    assert parse_store_url(url) == Url(scheme="file", name=name)


def test_s3a_is_another_name_for_s3() -> None:
    """Spark's scheme opens the same store, and one slash at the end is ignored."""
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
    """An ambiguous URL raises `ConfigurationError` instead of being repaired."""
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
    """The error names the service, and shows nothing else of the URL."""
    with pytest.raises(ConfigurationError, match=f"{service} is not supported") as refused:
        parse(url)
    assert "credentials" not in str(refused.value)
    assert "account" not in str(refused.value)


@pytest.mark.parametrize("parse", [parse_store_url, parse_table_url])
def test_credentials_do_not_hide_an_unknown_scheme(parse: Parse) -> None:
    """A URL of another kind may contain '@'. The error is about its scheme."""
    with pytest.raises(ConfigurationError, match="scheme must be") as refused:
        parse("postgres://user:geheim@host/db")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["s3://bucket//x", "s3://bucket/a//b", "memory://m/a/../b", "s3://bucket/x//"]
)
def test_a_prefix_that_no_path_can_have_is_refused(url: str) -> None:
    """It is refused rather than repaired, because two spellings would mean two leases."""
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
    """A URL without a table raises `ConfigurationError`."""
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
    """Neither the text and representation of a URL nor its error contain a secret."""
    word = "wJalrXUtnFEMI"
    shown: list[str] = []
    try:
        url = parse(form.format(scheme, word))
        shown += [str(url), repr(url)]
    except CommitError as error:
        shown.append(str(error))
    assert not [text for text in shown if word in text]


def test_options_given_in_the_call_replace_those_of_the_url() -> None:
    """`with_options` replaces options that are not None, keeps the rest, and refuses unknown options."""
    url = parse_store_url("s3://bucket?region=here&profile=p").with_options(
        {"region": "there", "profile": None}
    )
    assert dict(url.options) == {"region": "there", "profile": "p"}
    for wrong in ({"colour": "red"}, {"endpoint_url": "nowhere"}):
        with pytest.raises(ConfigurationError):
            url.with_options(wrong)


def test_a_url_can_be_pickled() -> None:
    """Its options survive, so it can be sent to other processes."""
    url = parse_store_url("s3://bucket/a?region=here")
    copy = pickle.loads(pickle.dumps(url))
    assert (copy, dict(copy.options)) == (url, {"region": "here"})
