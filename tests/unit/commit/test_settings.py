"""Settings of leases, and their spelling in ``object_store``."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.commit.settings import DynamoCommit, LeaseSettings, SqliteCommit, parse_dynamo
from commitlog.errors import ConfigurationError

names = st.from_regex(r"[A-Za-z0-9_.-]{3,40}", fullmatch=True)


def test_defaults_are_those_of_object_store() -> None:
    """Twenty seconds, a skew rate of three, an hour, a tenth of a second."""
    settings = DynamoCommit("commits")
    assert (settings.timeout, settings.max_clock_skew_rate) == (20.0, 3.0)
    assert (settings.ttl, settings.test_interval) == (3600.0, 0.1)
    assert settings.timeout_ms == 20_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 2.9},
        {"timeout": float("inf"), "ttl": float("inf")},
        {"timeout": float("nan")},
        {"max_clock_skew_rate": 0.99},
        {"ttl": 119.9},
        {"ttl": 1e19},
        {"timeout": 601.0},
        {"test_interval": 0.0},
        {"test_interval": 20.1},
        {"max_wait": -1.0},
        {"min_bandwidth": 0.0},
        {"min_bandwidth": float("nan")},
    ],
)
def test_settings_that_break_the_protocol_are_refused(wrong: dict[str, Any]) -> None:
    """They would drop records too early, make leases too short to use, or records unreadable."""
    with pytest.raises(ConfigurationError):
        LeaseSettings(**wrong)


def test_a_ttl_of_twice_the_longest_wait_is_allowed() -> None:
    """The bound itself is allowed."""
    assert LeaseSettings(ttl=120.0).ttl == 120.0


@given(names, st.none() | st.integers(3000, 10**7))
@example("commits", 4035)  # 4.035 * 1000 is slightly below 4035
def test_the_spelling_of_object_store_is_parsed(name: str, timeout_ms: int | None) -> None:
    """``dynamo:TABLE`` and ``dynamo:TABLE:TIMEOUT_MS`` give the table and the timeout."""
    settings = parse_dynamo(f"dynamo:{name}" + ("" if timeout_ms is None else f":{timeout_ms}"))
    assert settings.table == name
    assert settings.timeout_ms == (20_000 if timeout_ms is None else timeout_ms)


@given(st.text(max_size=30))
def test_any_other_text_is_refused_as_configuration(text: str) -> None:
    """Any text gives settings or a `ConfigurationError`."""
    with contextlib.suppress(ConfigurationError):
        assert parse_dynamo(text).table


@pytest.mark.parametrize(
    "text",
    [
        "dynamo:",
        "dynamo::20000",
        "dynamo:commits:",
        "dynamo:commits:-1",
        "dynamo:commits:2000",
        "dynamo:commits:²000",
        "dynamo:commits:" + 400 * "9",
        "dynamo:commits:20000:1",
        "dynamo:no/table",
        "etag",
    ],
)
def test_misspellings_are_refused(text: str) -> None:
    """A missing name, an invalid timeout, or additional text is refused."""
    with pytest.raises(ConfigurationError):
        parse_dynamo(text)


def test_a_repr_shows_no_secret() -> None:
    """Credentials are left out, because the text may end up in a log."""
    settings = DynamoCommit(
        "commits", access_key_id="AKIA1", secret_access_key="hush", session_token="token9"
    )
    assert not any(secret in repr(settings) for secret in ("AKIA1", "hush", "token9"))
    assert settings.options == {
        "access_key_id": "AKIA1",
        "secret_access_key": "hush",
        "session_token": "token9",
    }


def test_a_sqlite_file_becomes_an_absolute_url(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the same file wherever the URL is opened."""
    monkeypatch.chdir(tmp_path)
    assert SqliteCommit("commits.db").url == f"sqlite://{tmp_path}/commits.db"
    assert SqliteCommit("commits.db", timeout=5.0).timeout == 5.0
    with pytest.raises(ConfigurationError):
        SqliteCommit("")
