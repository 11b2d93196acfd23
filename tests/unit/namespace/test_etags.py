"""A listing without etags, as JuiceFS may return it: the etags are read with HEAD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from commitlog.errors import Unavailable
from commitlog.namespace import Namespace
from commitlog.stores.api import InFlight, Observation, Page
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.namespace import QUICK, ServiceTable


class Bare(MemoryStore):
    """A store whose listings have no etags while `on` is set; its HEAD of the path `never` fails."""

    on = False
    never = ""

    def list_page(self, *args: Any, **kwargs: Any) -> Page:
        """List objects."""
        page = super().list_page(*args, **kwargs)
        if not self.on:
            return page
        return evolve(page, objects=tuple(evolve(info, etag="") for info in page.objects))

    def begin_head(self, path: str) -> InFlight[Observation]:
        """Begin a HEAD."""
        if path == self.never:
            raise Unavailable("the answer has no etag")
        return super().begin_head(path)


@pytest.fixture
def store() -> Bare:
    """A store with two objects of another program."""
    store = Bare(clock=ManualClock())
    store.put("raw/x", b"abc")
    store.put("raw/y", b"de")
    return store


@pytest.fixture
def lake(store: Bare) -> Namespace:
    """A new namespace in that store."""
    clock = ManualClock()
    lake = Namespace(ServiceTable(clock=clock), store, "lake", clock=clock, backoff=QUICK)
    lake.create()
    return lake


LOOKS: dict[str, Callable[[Namespace], object]] = {
    "adopt": lambda lake: lake.maintenance.import_objects("raw/", "d"),
    "sync": lambda lake: (lake.bindings.bind("raw/", "d", max_age=3600), lake.bindings.sync("d")),
    "list": lambda lake: (lake.bindings.bind("raw/", "d"), list(lake.list("d"))),
}


@pytest.mark.parametrize("look", LOOKS)
def test_an_object_listed_without_an_etag_can_be_read(look: str, lake: Namespace, store: Bare) -> None:
    """The file has the etag from HEAD."""
    store.on = True
    LOOKS[look](lake)
    store.on = False
    assert (lake.read("d/x"), lake.read("d/y")) == (b"abc", b"de")


def test_a_deleted_file_stays_hidden(lake: Namespace, store: Bare) -> None:
    """A tombstone hides its object, even if listings have no etag."""
    lake.bindings.bind("raw/", "d", max_age=3600)
    lake.bindings.sync("d")
    lake.delete("d/x")
    assert store.head("raw/x").size == 3
    store.on = True
    lake.bindings.sync("d")
    assert [status.name for status in lake.list("d")] == ["y"]


def test_an_object_without_any_etag_is_refused(lake: Namespace, store: Bare) -> None:
    """The other objects are imported, and the report has the reason."""
    store.on, store.never = True, "raw/x"
    done = lake.maintenance.import_objects("raw/", "d")
    assert (done.files, [path for path, _ in done.refused]) == (1, ["raw/x"])
    assert "etag" in done.refused[0][1]
    assert lake.read("d/y") == b"de"
