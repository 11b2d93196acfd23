"""Registration of formats with sessions of Spark Connect."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field
from pyspark.errors import AnalysisException

from commitlog.spark import CommitlogDataSource
from commitlog.spark.session_conf import register


@define
class RemoteSession:
    """A session of Spark Connect whose server refuses each format with `condition`, if there is one."""

    condition: str | None
    sources: list[type] = field(factory=list)

    @property
    def dataSource(self) -> RemoteSession:
        return self

    def register(self, source: type) -> None:
        self.sources.append(source)
        if self.condition is not None:
            raise AnalysisException("refused", errorClass=self.condition)


@pytest.mark.parametrize("condition", [None, "DATA_SOURCE_ALREADY_EXISTS"])
def test_a_format_that_the_server_knows_is_accepted(condition: str | None) -> None:
    """Spark 4.0 raises an error for a format that it has found by itself."""
    session: Any = RemoteSession(condition)
    register(session, CommitlogDataSource)
    assert session.sources == [CommitlogDataSource]


def test_other_errors_of_a_registration_are_raised() -> None:
    """Without the format, the first use of it would fail."""
    session: Any = RemoteSession("PYTHON_DATA_SOURCE_ERROR")
    with pytest.raises(AnalysisException, match="refused"):
        register(session, CommitlogDataSource)
