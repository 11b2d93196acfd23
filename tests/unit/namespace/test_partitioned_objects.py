"""A check in partitions lists the objects, and looks up only those that are not listed as expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog._util.request_stats import RequestRecorder
from commitlog.namespace import FsckReport, Restorer
from commitlog.namespace.model.keys import hash_of
from commitlog.namespace.partitioned.dataset import Dataset, Engine, OpenAccess, SerialEngine
from commitlog.namespace.partitioned.objects import ObjectListing, cover, is_directory
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.namespace.write.content import is_content
from commitlog.stores.api import ObjectInfo
from commitlog.stores.counting_store import CountingStore
from support.damage import entry, filled, lose_object, replaced, store_unnamed
from support.namespace import stored
from support.restore import LAKE, World, world


@frozen
class Listed(ObjectListing):
    """A list of objects that was made earlier."""

    infos: Sequence[ObjectInfo]
    time: float | None = None

    def objects(
        self, engine: Engine, open_access: OpenAccess, others: Dataset[str] | None
    ) -> Dataset[ObjectInfo]:
        """See `ObjectListing.objects`."""
        return engine.distribute(self.infos)


def compared(at: World) -> FsckReport:
    """Check a namespace in one process, and in partitions; return the report."""
    how: dict[str, Any] = {"grace": 0, "objects": True, "orphans": True}
    at.engine = None
    expected = at.check(**how)
    for partitions in (1, 3, 16):
        at.engine = SerialEngine(partitions=partitions)
        assert at.check(**how).findings == expected.findings
    return expected


def count_requests(at: World, partitions: int, **how: Any) -> tuple[Counter[str], FsckReport]:
    """Check a namespace in partitions; return the requests of its tasks, and the report."""
    recorder = RequestRecorder()
    store = CountingStore(at.store, recorder)
    access = Restorer(table=at.table, store=store, log=at.log, name=LAKE)
    engine = SerialEngine(partitions=partitions)
    surveyor = partial(PartitionedSurveyor.of, engine, lambda: nullcontext(access))
    report = at.lake.maintenance.fsck(open_surveyor=surveyor, grace=0, **how)
    requests = {name.rpartition(".")[2]: number for name, number in recorder.counts().items()}
    return Counter(requests), report


@pytest.mark.parametrize("partitions", [1, 16])
def test_a_sound_namespace_is_listed(partitions: int) -> None:
    """No file is looked up, however many there are; the log is not listed."""
    at = world()
    for number in range(300):
        at.lake.write(f"{number % 7}/{number}", b"1")
    requests, report = count_requests(at, partitions, objects=True, orphans=True)
    starts = 16 if partitions == 1 else 256
    assert report.is_clean and report.objects == report.listed == 300
    assert requests["store_heads"] == 0
    assert starts < requests["store_lists"] <= 2 * starts


def test_a_listing_takes_a_request_for_a_thousand_files() -> None:
    """In addition to two for each of the sixteen first digits."""
    at = world()
    files = {}
    for number in range(4_000):
        name = f"{hash_of(str(number)):032x}"[::-1]
        files[name] = evolve(stored(at.store, f"{name[:3]}/{name}"), own=True)
    at.lake.make_directory("in")
    at.lake.bulk_link("in", files)
    requests, report = count_requests(at, 1, objects=True, orphans=True)
    assert report.is_clean and report.objects == report.listed == len(files)
    assert requests["store_heads"] == 0
    assert len(files) / 1000 < requests["store_lists"] <= len(files) / 1000 + 32


def test_many_objects_of_others_are_listed() -> None:
    """Each directory with more than a few of them is listed once; other directories are not."""
    at = world()
    for number in range(500):
        at.lake.link(f"in/{number}", stored(at.store, f"raw/{number % 3}/{number}"))
        at.store.put(f"raw/other/{number}", b"1")
    requests, report = count_requests(at, 1, objects=True)
    assert report.is_clean
    assert (report.objects, report.listed) == (500, 500)
    assert requests["store_heads"] == 0 and requests["store_lists"] < 30


@pytest.mark.parametrize("partitions", [1, 8])
def test_objects_at_the_root_are_listed(partitions: int) -> None:
    """Then the whole store is listed once, with content and log."""
    at = world()
    for number in range(100):
        at.lake.link(f"in/{number}", stored(at.store, f"{number}"))
        at.lake.write(f"own/{number}", b"1")
    requests, report = count_requests(at, partitions, objects=True, orphans=True)
    assert report.is_clean
    assert (report.objects, report.listed) == (200, sum(1 for _ in at.store.list()))
    assert requests["store_heads"] == 0 and requests["store_lists"] < 20 * partitions


def test_few_objects_of_others_are_looked_up() -> None:
    """So a large bucket is not listed for them."""
    at = world()
    for number in range(5):
        at.lake.link(f"in/{number}", stored(at.store, f"{number}"))
    requests, report = count_requests(at, 1, objects=True)
    assert report.is_clean
    assert (report.objects, report.listed, requests["store_heads"]) == (5, 0, 5)


@pytest.mark.parametrize("others", [1, 1200])
def test_objects_between_content_are_not_listed(others: int) -> None:
    """They may be many, with names that begin like those of content."""
    at = world()
    for number in range(60):
        at.lake.write(f"{number}", b"1")
    content = [info.path for info in at.store.list() if is_content(info.path)]
    for number, digit in enumerate("0123456789abcdef"):
        at.store.put(f"{digit}-archive/x" if number % 2 else f"{digit}-archive", b"1")
    for number in range(others):
        at.store.put(f"0-{number}/x", b"1")
    at.lake.link("theirs", stored(at.store, f"{content[0][:4]}theirs"))
    _, report = count_requests(at, 1, objects=True, orphans=True)
    assert report.is_clean and report.listed == len(content) + 1


#: Changes of a listed object, as if it was listed before or after another change.
STALE: dict[str, Callable[[ObjectInfo], list[ObjectInfo]]] = {
    "as it is": lambda info: [info],
    "missing": lambda info: [],
    "another size": lambda info: [evolve(info, size=info.size + 1)],
    "another etag": lambda info: [evolve(info, etag='"other"')],
    "no etag": lambda info: [evolve(info, etag="")],
    "bare etag": lambda info: [evolve(info, etag=info.etag.strip('"'))],
}


@pytest.mark.parametrize("change", STALE)
@pytest.mark.parametrize("damage", [lose_object, replaced, store_unnamed, lambda at: None])
def test_a_lookup_decides(change: str, damage: Callable[[World], object]) -> None:
    """A list that shows other objects leads to no finding, and hides none that it shows as wrong."""
    at = filled()
    damage(at)
    infos = [each for info in at.store.list() for each in STALE[change](info)]
    unnamed = [info for info in at.store.list() if damage is store_unnamed]
    at.listing = Listed([*infos, *unnamed])
    compared(at)


def test_what_happened_since_is_not_found() -> None:
    """An object that was lost or stored after an inventory is neither missing nor an orphan."""
    at = filled()
    at.listing = Listed(list(at.store.list()))
    lose_object(at)
    store_unnamed(at)
    at.engine = SerialEngine(partitions=2)
    assert at.check(grace=0, objects=True, orphans=True).is_clean


def test_orphans_may_be_gone() -> None:
    """Or be stored again since: then a file may refer to them soon."""
    at = filled()
    store_unnamed(at)
    [orphan] = [each.object for each in compared(at).findings]
    assert orphan is not None
    at.listing = Listed(list(at.store.list()))
    at.store.put(orphan, b"again")
    assert compared(at).is_clean
    at.store.delete(orphan)
    assert compared(at).is_clean


def test_two_files_of_an_object_are_both_found() -> None:
    """Each file with a missing object is a finding."""
    at = filled()
    first = entry(at, "over").data
    assert first is not None
    at.lake.link("again", evolve(first, own=False))
    at.store.delete(first.path)
    assert compared(at).counts["object-missing"] == 2


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=6).map("/".join),
        max_size=400,
    )
)
def test_a_cover_has_all_paths(paths: list[str]) -> None:
    """It is small, and the covers of parts can be combined."""
    combined = cover(each for start in range(3) for each in cover(paths[start::3]))
    for covered in (combined, cover(paths)):
        assert len(covered) <= 64
        directories = tuple(filter(is_directory, covered))
        assert all(path in covered or path.startswith(directories) for path in paths)
    assert len(set(paths)) > 64 or combined == sorted(set(paths))
