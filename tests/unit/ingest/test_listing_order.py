"""Sources of stores that sort paths directory by directory: nothing is lost, or an error says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from commitlog.errors import NotSupported
from commitlog.ingest import IngestSettings
from commitlog.testing import ManualClock
from support.directory_order import DirectoryBucket
from support.ingest import Engine, state_table

_GRACE = 60.0


class Place:
    """A bucket whose store sorts directory by directory, and a query that reads it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = DirectoryBucket("memory://odd", clock=self.clock)
        self.store.delete_many(info.path for info in self.store.list())
        settings = {"source": "s", "grace": _GRACE, **settings}
        self.query = Engine(
            store=self.store,
            table=state_table(),
            settings=IngestSettings(**settings),
            clock=self.clock,
        )

    def put(self, *paths: str, age: float = 0.0) -> None:
        """Put objects."""
        for path in paths:
            self.store.put_at(path, path.encode(), self.clock.epoch() - age)

    @property
    def delivered(self) -> list[str]:
        """The paths of all delivered objects, in their order."""
        slices = self.query.checkpoint.slices
        return [each.file.path for number in sorted(slices) for each in slices[number]]

    @property
    def boundary(self) -> str:
        """The boundary of the source."""
        state = self.query.source.state.read()
        assert state is not None
        return state.watermarks.boundary


@pytest.mark.parametrize("max_files", [1, 2, 3, 4])
@pytest.mark.parametrize("ordered", [False, True])
def test_objects_below_an_object_are_read_once(max_files: int, ordered: bool) -> None:
    """They are found wherever a batch ends, also if they are all older than the grace window."""
    place = Place(max_files=max_files, ordered=ordered)
    place.put("a", "app", "app-eu/1", "app/1", "app/2", "app/3/x", "b", age=9 * _GRACE)
    place.query.drain()
    place.clock.advance(9 * _GRACE)
    place.query.drain()
    assert sorted(place.delivered) == ["a", "app", "app-eu/1", "app/1", "app/2", "app/3/x", "b"]


def test_a_store_with_falling_paths_is_read_without_a_boundary(caplog: pytest.LogCaptureFixture) -> None:
    """A warning names the store once. Later objects are found, wherever they are."""
    place = Place(ordered=True, list_limit=2, max_files=3)
    place.put("app/1", "app/2", "app-eu/1", "app-eu/2", "b/1", age=9 * _GRACE)
    with caplog.at_level(logging.WARNING):
        place.query.drain()
        for day in range(3, 7):
            place.put(f"app/{day}", f"app-eu/{day}")
            place.query.drain()
            place.clock.advance(_GRACE)
    assert sorted(place.delivered) == sorted(info.path for info in place.store.list())
    assert place.boundary == ""
    (record,) = caplog.records
    assert "memory://odd lists 'app-eu/1' after 'app/2'" in record.getMessage()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("app-eu/1", "app/1"),  # in neither part
        ("app/1", "app-eu/1"),  # listed in the tail, below the boundary
        ("app", "app/1"),  # hidden by the object at the boundary
    ],
)
def test_a_store_whose_order_shows_after_the_boundary_has_moved_is_refused(
    before: str, after: str
) -> None:
    """Objects may be on the wrong side: the query stops, and the error names store and way out."""
    place = Place(ordered=True)
    place.put("a", before, age=9 * _GRACE)
    place.query.drain()
    assert place.boundary == before
    place.put(after)
    with pytest.raises(NotSupported, match=r"^memory://odd lists .* does not sort .* ingest reset"):
        place.query.drain()
