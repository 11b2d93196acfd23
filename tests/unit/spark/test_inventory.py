"""S3 Inventories: how they are found and read, and checks of namespaces with them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

import pytest
from attrs import evolve

from commitlog.errors import CommitError, ConfigurationError, CorruptRecord, NotFound, NotSupported
from commitlog.namespace import FsckReport
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.spark.inventory import open_inventory
from commitlog.stores import MemoryStore, ObjectInfo, ObjectStore, open_store
from support.damage import DAMAGES, spoil, without_log
from support.inventory import CURRENT, FORMATS, VERSIONS, Row, inventory_of, write_inventory
from support.restore import World, fill, world

STORE = "memory://source/some/lake"

_numbers = count()


@pytest.fixture
def bucket() -> Iterator[MemoryStore]:
    """A bucket for inventories, which `open_store` opens as well."""
    with closing(MemoryStore(f"memory://inventories-{next(_numbers)}")) as store:
        yield store


def listed(at: str, store: str = STORE) -> list[ObjectInfo]:
    """Return the objects in an inventory, in order."""
    # An inventory has all objects, so it needs neither the store nor the paths.
    found = open_inventory(at, store).objects(SerialEngine(), None, None)  # type: ignore[arg-type]
    return sorted(found.collect(), key=lambda info: info.path)


def paths(at: str, store: str = STORE) -> list[str]:
    """Return the paths of the objects in an inventory, in order."""
    return [info.path for info in listed(at, store)]


HOSTILE = ["a b", "a+b", "a%2Bb", "a%20b", "ü/ß", "n\nl", 'q"u,o', "'", "%", "z//z", "x/"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("fields", [CURRENT, VERSIONS, tuple(reversed(CURRENT))])
def test_objects_are_listed(bucket: MemoryStore, format: str, fields: Sequence[str]) -> None:
    """Keys may have any characters. Those outside of the store are left out."""
    rows = [Row(f"some/lake/{path}") for path in HOSTILE]
    rows += [Row("some/lake/d/", 0), Row("some/lake/", 0), Row("some/lakes"), Row("other"), Row("a b")]
    path = write_inventory(bucket, rows, format, fields=fields, files=3)
    assert paths(f"{bucket.url}/{path}") == sorted(HOSTILE)
    root = write_inventory(bucket, rows, format, fields=fields, files=1)
    assert paths(f"{bucket.url}/{root}", "memory://source") == sorted(
        ["a b", "other", "some/lakes", *(f"some/lake/{path}" for path in HOSTILE)]
    )


@pytest.mark.parametrize("format", FORMATS)
def test_objects_are_described(bucket: MemoryStore, format: str) -> None:
    """Times have milliseconds; sizes may be large."""
    rows = [
        Row("some/lake/a", 5 * 10**12, "0cc175b9c0f1b6a831c399e269772661-9", 1_800_000_000_123),
        Row("some/lake/b", 0, "d41d8cd98f00b204e9800998ecf8427e", 1, version="v1"),
    ]
    path = write_inventory(bucket, rows, format, fields=VERSIONS)
    assert listed(f"{bucket.url}/{path}") == [
        ObjectInfo(
            path="a",
            size=5 * 10**12,
            etag="0cc175b9c0f1b6a831c399e269772661-9",
            last_modified=1_800_000_000.123,
        ),
        ObjectInfo(
            path="b",
            size=0,
            etag="d41d8cd98f00b204e9800998ecf8427e",
            version="v1",
            last_modified=0.001,
        ),
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_old_versions_are_left_out(bucket: MemoryStore, format: str) -> None:
    """And so are delete markers, which have no size and no etag."""
    rows = [
        Row("some/lake/kept", 2, "new", version="2"),
        Row("some/lake/kept", 1, "old", version="1", latest=False),
        Row("some/lake/gone", None, None, version="3", marker=True),
        Row("some/lake/gone", 1, "old", version="2", latest=False),
        Row("some/lake/back", 1, "back", version="5"),
        Row("some/lake/back", None, None, version="4", latest=False, marker=True),
    ]
    path = write_inventory(bucket, rows, format, fields=VERSIONS, files=1)
    found = [(info.path, info.etag, info.version) for info in listed(f"{bucket.url}/{path}")]
    assert found == [("back", "back", "5"), ("kept", "new", "2")]


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_bucket_has_an_inventory(bucket: MemoryStore, format: str) -> None:
    """With an empty file, or with none."""
    for files in (0, 1):
        path = write_inventory(bucket, [], format, files=files)
        assert listed(f"{bucket.url}/{path}") == []


def test_the_newest_complete_inventory_is_found(bucket: MemoryStore) -> None:
    """Below the directory of all dates; a directory without a checksum is not complete."""
    above = "inventories/source/all"
    dates = [f"2026-11-{day:02}T01-00Z" for day in (8, 9, 10)]
    for number, date in enumerate(dates):
        rows = [Row(f"some/lake/{number}")]
        write_inventory(bucket, rows, "CSV", date=date, milliseconds=1000 * number)
    bucket.put(f"{above}/hive/dt=2026-11-11-01-00/symlink.txt", b"x")
    bucket.put(f"{above}/2026-11-12T01-00Z/manifest.json", b"{")
    bucket.delete(f"{above}/{dates[2]}/manifest.checksum")
    for at in (above, f"{above}/", f"{above}/{dates[1]}", f"{above}/{dates[1]}/manifest.json"):
        assert paths(f"{bucket.url}/{at}") == ["1"]
        assert open_inventory(f"{bucket.url}/{at}", STORE).time == 1.0
    assert paths(f"{bucket.url}/{above}/{dates[0]}/") == ["0"]
    for at in (f"{above}/{dates[2]}", f"{above}/{dates[2]}/manifest.json", "inventories", ""):
        with pytest.raises(ConfigurationError, match="complete"):
            open_inventory(f"{bucket.url}/{at}", STORE)


def test_inventories_may_be_in_a_local_directory(tmp_path: Path) -> None:
    """The keys of the data files begin at some directory above the manifest."""
    below = tmp_path / "copy of" / "destination"
    below.mkdir(parents=True)
    with closing(open_store(f"file://{below}")) as store:
        path = write_inventory(store, [Row("a"), Row("b")], "Parquet", bucket="lake")
    at = f"file://{below}/{path}".replace(" ", "%20")
    assert paths(at, f"file://{tmp_path}/lake") == ["a", "b"]
    empty = f"file://{below}/inventories/source/all".replace(" ", "%20")
    assert open_inventory(empty, "memory://lake").place.name == "/"


def test_a_manifest_is_verified(bucket: MemoryStore) -> None:
    """Against its checksum; and it must be a manifest of S3 Inventory."""
    path = write_inventory(bucket, [Row("a")], "CSV")
    checksum = path.replace(".json", ".checksum")
    content = bucket.get(path).data
    bucket.put(path, content.replace(b'"size": ', b'"size": 1'))
    with pytest.raises(CorruptRecord, match="checksum"):
        open_inventory(f"{bucket.url}/{path}", STORE)
    for wrong in ({}, [], {**json.loads(content), "files": [{"key": "x"}]}):
        _put_manifest(bucket, path, wrong)
        with pytest.raises(CorruptRecord, match="not the manifest"):
            open_inventory(f"{bucket.url}/{path}", STORE)
    bucket.put(path, content)
    bucket.put(checksum, bucket.get(checksum).data)


def _put_manifest(bucket: ObjectStore, path: str, manifest: object) -> None:
    content = json.dumps(manifest).encode()
    bucket.put(path, content)
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    bucket.put(path.replace(".json", ".checksum"), f"{digest.upper()}\n".encode())


def test_formats_are_known(bucket: MemoryStore) -> None:
    """A format that S3 may add is refused."""
    path = write_inventory(bucket, [Row("a")], "CSV")
    manifest = json.loads(bucket.get(path).data)
    _put_manifest(bucket, path, {**manifest, "fileFormat": "Avro"})
    with pytest.raises(NotSupported, match="avro"):
        open_inventory(f"{bucket.url}/{path}", STORE)


@pytest.mark.parametrize("format", FORMATS)
def test_fields_are_needed(bucket: MemoryStore, format: str) -> None:
    """The message says which ones to add."""
    path = write_inventory(bucket, [Row("a")], format, fields=("Bucket", "Key", "StorageClass"))
    with pytest.raises(ConfigurationError, match="lacks Size, LastModifiedDate, ETag: add"):
        open_inventory(f"{bucket.url}/{path}", STORE)
    fields = [each for each in VERSIONS if each not in ("IsLatest", "ETag")]
    path = write_inventory(bucket, [Row("a")], format, fields=fields)
    with pytest.raises(ConfigurationError, match="lacks ETag, IsLatest: add"):
        open_inventory(f"{bucket.url}/{path}", STORE)


def test_the_bucket_is_compared(bucket: MemoryStore) -> None:
    """An inventory of another bucket would show all objects as missing."""
    path = write_inventory(bucket, [Row("a")], "CSV", bucket="another")
    with pytest.raises(ConfigurationError, match="of bucket 'another'; the store is in 'source'"):
        open_inventory(f"{bucket.url}/{path}", STORE)
    assert paths(f"{bucket.url}/{path}", "s3://another?region=eu-west-1") == ["a"]
    path = write_inventory(bucket, [Row("a")], "CSV", bucket="arn:aws:s3:::source")
    assert paths(f"{bucket.url}/{path}", "memory://source") == ["a"]


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files_are_refused(bucket: MemoryStore, format: str) -> None:
    """Objects that are missing from the list would be looked up one by one."""
    at = f"{bucket.url}/{write_inventory(bucket, [Row('a')], format, files=1)}"
    [file] = open_inventory(at, STORE).files
    content = bucket.get(file.key).data
    for wrong in (content[:-10], b"x" * len(content), content[:20] + b"x" * (len(content) - 20)):
        bucket.put(file.key, wrong)
        with pytest.raises(CorruptRecord):
            listed(at)
    write_inventory(bucket, [Row("a"), Row("bc")], format, files=1)
    another = bucket.get(file.key).data
    write_inventory(bucket, [Row("a")], format, files=1)
    bucket.put(file.key, another)
    with pytest.raises(CorruptRecord, match=f"has {len(another)} bytes instead of {file.size}"):
        listed(at)
    bucket.delete(file.key)
    with pytest.raises(NotFound):
        listed(at)


@pytest.mark.parametrize("row", [Row("some/lake/a", None), Row("some/lake/a", milliseconds=10**18)])
@pytest.mark.parametrize("format", ["CSV", "Parquet"])
def test_impossible_rows_are_refused(bucket: MemoryStore, format: str, row: Row) -> None:
    """An object has a size, and a time within the calendar."""
    if row.size is None or format == "Parquet":
        at = f"{bucket.url}/{write_inventory(bucket, [row], format)}"
        with pytest.raises(CorruptRecord):
            listed(at)


# -- checks --------------------------------------------------------------------------------------------


def checked(at: World, lake: object = None, **how: object) -> FsckReport:
    """Check a namespace; return the report without what depends on the way."""
    report = at.check(lake, grace=0, objects=True, orphans=True, **how)  # type: ignore[arg-type]
    return evolve(report, states=0, listed=0)


def take_inventory(at: World, bucket: MemoryStore, format: str) -> None:
    """Let the checks of a namespace use an inventory of its store, as it is now."""
    rows = inventory_of(at.store.list(), "some/lake/")
    path = write_inventory(bucket, [*rows, Row("other")], format)
    at.listing = open_inventory(f"{bucket.url}/{path}", STORE)


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_alike(bucket: MemoryStore, name: str) -> None:
    """With an inventory as without one."""
    damage, random = DAMAGES[name], Random(name)
    at = world()
    if damage.kind != "no-metadata":
        fill(at.lake, at.clock)
    lake = None if damage.logged else without_log(at)
    damage.does(at)
    expected = checked(at, lake)
    take_inventory(at, bucket, random.choice(FORMATS))
    at.engine = SerialEngine(partitions=random.randint(1, 16), shuffle=random.shuffle)
    assert checked(at, lake) == expected
    assert damage.kind in expected.counts


@pytest.mark.parametrize("seed", range(30))
def test_an_old_inventory_shows_no_wrong_findings(bucket: MemoryStore, seed: int) -> None:
    """Damages since may be missed if they concern objects; all findings are true."""
    random = Random(seed)
    at = world(seed)
    fill(at.lake, at.clock)
    spoil(at, random)
    take_inventory(at, bucket, random.choice(FORMATS))
    for number in range(3):
        with contextlib.suppress(CommitError):  # the root may be damaged
            at.lake.write(f"since/{number}", b"1")
        spoil(at, random)
    at.clock.advance(9 * 86_400)
    expected = checked(at).findings
    at.engine = SerialEngine(partitions=random.randint(1, 16), shuffle=random.shuffle)
    found = checked(at).findings
    missed = [each for each in expected if each not in found]
    assert [each for each in expected if each in found] == list(found)
    kinds = {"object-missing", "object-changed", "out-of-date", "orphan-object"}
    assert {each.problem.name for each in missed} <= kinds
