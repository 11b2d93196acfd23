"""Any URL, path, option or setting is accepted, or refused before a request is sent.

No secret is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from commitlog.aws import AwsOptions
from commitlog.cli import main
from commitlog.cli.urls import split, split_directory
from commitlog.commit.settings import parse_dynamo
from commitlog.connect import connect
from commitlog.errors import CommitError, ConfigurationError, InvalidPath
from commitlog.paths import check_path, check_prefix, join
from commitlog.stores.open import open_store
from commitlog.tables.api import TableSchema
from commitlog.tables.open import open_table
from commitlog.urls import Url, bucket_of, parse_store_url, parse_table_url
from support.fuzzing import WILD_TEXTS, Properties, outcome, scratch, wild_scalars, wild_texts

fuzz = Properties()

REFUSED = (ConfigurationError, InvalidPath)
SECRET = "wJalrXUtnFEMI"

URLS = (
    "s3://bucket/a%20b/c?region=eu-west-1&endpoint_url=http://127.0.0.1:9000&addressing_style=path",
    f"s3a://bucket?access_key_id=AKIA&secret_access_key={SECRET}&session_token={SECRET}",
    "file:///data/lake",
    "file:/data/lake",
    "memory://name/prefix",
    "dynamodb://commits?endpoint_url=http://[::1]:4566&profile=p",
    "sqlite:///data/commits.db",
    "/data/lake",
    "~/lake",
    "relative/lake",
)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Return a damaged URL, or a URL of random parts."""
    if draw(st.booleans()):
        url = draw(st.sampled_from(URLS))
        at = draw(st.integers(0, len(url)))
        middle = draw(wild_texts | wild_texts.map(lambda text: quote(text, errors="replace")))
        return url[:at] + middle + url[at + draw(st.integers(0, 5)) :]
    scheme = draw(
        st.sampled_from(["s3://", "s3:", "S3A://", "file://", "file:", "memory://", "http://"])
        | st.sampled_from(["dynamodb://", "sqlite://", "sqlite:", "", "://", "x-y.z+1://"])
    )
    place = draw(wild_texts | wild_texts.map(lambda text: quote(text, errors="replace")))
    options = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["region", "endpoint_url", "verify", "session_token", "REGION"]),
                wild_texts,
            ),
            max_size=3,
        )
    )
    query = "&".join(f"{name}={value}" for name, value in options)
    return f"{scheme}{place}/{draw(wild_texts)}" + (f"?{query}" if query else "")


def check_url(found: object, parse: Callable[[str], Url]) -> None:
    """Check that the text of a URL has the same location, and shows no secret."""
    if isinstance(found, Url):
        shown = str(found)
        shown.encode()
        assert shown.isprintable()
        # The path of a directory is not parsed for secrets.
        assert SECRET not in shown + repr(found) or found.scheme in ("file", "sqlite")
        again = parse(shown)
        assert (again.scheme, again.name, again.prefix) == (found.scheme, found.name, found.prefix)
        assert str(again) == shown


@fuzz(500, url=urls())
def test_any_url_is_parsed_or_refused(url: str) -> None:
    """The text of a parsed URL has the same location."""
    for parse in (parse_store_url, parse_table_url):
        found = outcome(lambda: parse(url), *REFUSED)  # noqa: B023
        check_url(found, parse)
        if isinstance(found, Exception):
            assert SECRET not in str(found)
    outcome(lambda: bucket_of(url), *REFUSED)


@pytest.mark.parametrize("url", [*URLS[:2], "memory://a", "dynamodb://commits", "/a"])
@pytest.mark.parametrize("text", WILD_TEXTS)
def test_any_text_anywhere_in_a_url_is_accepted_or_refused(url: str, text: str) -> None:
    """At no position does a hostile text have another effect."""
    for part in (text, quote(text, errors="replace")):
        for at in range(0, len(url) + 1, 3):
            for parse in (parse_store_url, parse_table_url):
                changed = url[:at] + part + url[at:]
                check_url(outcome(lambda: parse(changed), *REFUSED), parse)  # noqa: B023


@pytest.mark.parametrize("url", [" s3://bucket/a", "\ufeffs3://bucket", "S 3://bucket", "'s3://bucket'"])
def test_a_url_with_a_character_in_front_is_not_a_directory(url: str) -> None:
    """A URL that was copied with an additional character is refused, and no local store is made."""
    for parse in (parse_store_url, parse_table_url, open_store):
        with pytest.raises(ConfigurationError, match="scheme"):
            parse(url)


@fuzz(100, url=wild_scalars | st.binary(max_size=5) | st.lists(st.text(), max_size=2))
def test_a_url_of_another_type_is_refused(url: Any) -> None:
    """Numbers, bytes and lists are refused as such."""
    for parse in (parse_store_url, parse_table_url):
        found = outcome(lambda: parse(url), *REFUSED)  # noqa: B023
        assert isinstance(url, str) or isinstance(found, ConfigurationError)


@fuzz(300, path=wild_texts, prefix=wild_texts)
def test_any_path_is_valid_or_refused(path: str, prefix: str) -> None:
    """An accepted path stays below any prefix that it is joined to, and can be encoded."""
    if not isinstance(outcome(lambda: check_path(path), InvalidPath), Exception):
        assert os.path.normpath(f"/root/{path}") == f"/root/{path}"
        assert len(path.encode()) <= 1024 and "\x1b" not in path
    found = outcome(lambda: check_prefix(prefix), InvalidPath)
    if not isinstance(found, Exception) and not isinstance(
        outcome(lambda: check_path(join(prefix, path)), InvalidPath), Exception
    ):
        assert not join(prefix, path).startswith("/")


# -- options and settings ----------------------------------------------------------------------------


@fuzz(
    200,
    options=st.dictionaries(
        st.sampled_from(["endpoint_url", "region", "profile", "addressing_style", "verify", "what"])
        | st.sampled_from(["access_key_id", "secret_access_key", "session_token"]),
        wild_texts,
        max_size=4,
    ),
    url=st.sampled_from(["s3://bucket", "dynamodb://commits", "memory://a"]),
)
def test_any_option_is_valid_or_refused(options: dict[str, str], url: str) -> None:
    """Options next to a URL are checked like those in it."""
    parse = parse_table_url if url.startswith("dynamodb") else parse_store_url
    found = outcome(lambda: parse(url).with_options(options), *REFUSED)
    if isinstance(found, Url):
        assert str(found).isprintable()
        if found.scheme != "memory":
            outcome(lambda: AwsOptions.from_url(found), *REFUSED)


@fuzz(60, url=urls())
def test_any_url_opens_or_is_refused(url: str) -> None:
    """Opening a store or a table sends no request. An invalid URL is refused."""
    schema = TableSchema(hash_key="path", range_key="etag")
    for opened in (
        outcome(lambda: open_store(url), *REFUSED),
        outcome(lambda: open_table(url, schema), *REFUSED),
    ):
        if not isinstance(opened, Exception):
            opened.close()


@fuzz(200, text=wild_texts | wild_texts.map("dynamo:{}".format) | wild_texts.map("dynamo:a:{}".format))
def test_any_commit_strategy_is_valid_or_refused(text: str) -> None:
    """This is the `commit` argument of `connect`."""
    outcome(lambda: parse_dynamo(text), ConfigurationError)
    opened = outcome(lambda: connect("memory://fuzz", commit=text), *REFUSED)
    if not isinstance(opened, Exception):
        opened.close()


# -- the command line --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory for stores."""
    with scratch() as directory:
        yield directory


@fuzz(200, url=urls())
def test_any_location_is_parsed_or_refused(url: str) -> None:
    """This is the argument of a command for an object or an output."""
    if not url.startswith("~"):
        outcome(lambda: split(url), *REFUSED)
        outcome(lambda: split(url, prefix=True), *REFUSED)
        outcome(lambda: split_directory(url), *REFUSED)


@pytest.mark.parametrize("command", ["cat", "stat", "ls", "output log", "output recover", "lease list"])
@pytest.mark.parametrize("name", ["a%00b", "a%0Ab", "%ff", "..%2f..", "%ed%a0%80", "a%1b[2Jb", "%"])
def test_a_command_refuses_an_invalid_name_in_one_line(command: str, name: str, place: Path) -> None:
    """An impossible file name ends a command with an exit status and one line, without a traceback."""
    scheme = "sqlite" if command == "lease list" else "file"
    for url in (f"{scheme}://{place}/{name}", f"{scheme}://{place}/{name}/x"):
        done = CliRunner().invoke(main, [*command.split(), url])
        if done.exit_code:
            assert done.exit_code in (1, 2)
            assert len(done.stderr.splitlines()) == 1
            assert done.stderr.startswith("commitlog: ") and "unexpected" not in done.stderr
        assert "\x1b" not in done.output


def test_refusals_are_errors_of_this_library() -> None:
    """Both kinds of refusal are `CommitError` and `ValueError`."""
    assert all(issubclass(kind, CommitError) and issubclass(kind, ValueError) for kind in REFUSED)


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")
