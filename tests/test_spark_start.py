"""The session helper, as far as it needs no session."""

from __future__ import annotations

import pytest

from commitlog.errors import ConfigurationError
from commitlog.spark import session


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark would fail with a page of JVM start-up, one line says what is missing."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17 or 21.*apt-get install"):
        session()
