"""A process that creates objects or zarr nodes that other processes create, too, through fsspec.

It reads a `Race` as a line of JSON, creates an object of its own in each way, so that the store is
probed, and prints ``ready``. It waits for another line, and then prints a line of JSON for each attempt:
the path, the way, and whether it ``won``, ``lost``, or the outcome is ``unknown``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import fsspec
from attrs import frozen

from commitlog.errors import OutcomeUnknown
from commitlog.filesystem import object_writer

__all__ = ["Race", "content"]

_STAGE_ABOVE = 1024


@frozen(kw_only=True)
class Race:
    """What a process creates.

    Attributes:
        protocol, options: of the file system.
        directory: the path of the directory of the objects.
        names: the names of the objects.
        owner: the name of the process.
        ways: the ways to create an object, in turn: ``open`` in mode "xb", the same with a body that is
            staged, ``staged``, and ``pipe``; or ``zarr`` to create arrays.
    """

    protocol: str
    options: dict[str, Any]
    directory: str
    names: list[str]
    owner: str
    ways: list[str]


def content(owner: str, way: str) -> bytes:
    """Return what a process writes."""
    return f"{owner} ".encode() * (1000 if way == "staged" else 10)


def _create(fs: Any, path: str, race: Race, way: str) -> None:
    data = content(race.owner, way)
    if way == "pipe":
        fs.pipe(path, data, mode="create")
        return
    with fs.open(path, "xb") as file:
        file.write(data)


def _create_array(fs: Any, path: str, race: Race) -> None:
    import zarr
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    from commitlog.filesystem import WriteOnceZarrStore

    store = WriteOnceZarrStore(AsyncFileSystemWrapper(fs, asynchronous=True), path=race.directory)
    zarr.create_array(
        store,
        name=path.removeprefix(f"{race.directory}/"),
        shape=(4,),
        chunks=(2,),
        dtype="i4",
        attributes={"owner": race.owner},
    )


def _attempt(fs: Any, path: str, race: Race, way: str) -> str:
    try:
        if way == "zarr":
            _create_array(fs, path, race)
        else:
            _create(fs, path, race, way)
    except OutcomeUnknown:
        return "unknown"
    except (FileExistsError, ValueError) as error:
        if not isinstance(error, FileExistsError) and "Contains" not in type(error).__name__:
            raise
        return "lost"
    return "won"


def main() -> None:
    """Run in a process of its own."""
    race = Race(**json.loads(sys.stdin.readline()))
    object_writer.STAGE_ABOVE = _STAGE_ABOVE
    fs = fsspec.get_filesystem_class(race.protocol)(**race.options)
    for way in race.ways:
        assert _attempt(fs, f"{race.directory}/{race.owner}-{way}", race, way) == "won"
    print("ready", flush=True)
    sys.stdin.readline()
    for number, name in enumerate(race.names):
        path, way = f"{race.directory}/{name}", race.ways[number % len(race.ways)]
        outcome = _attempt(fs, path, race, way)
        print(json.dumps([name, way, outcome]), flush=True)
    fs.close()


if __name__ == "__main__":
    main()
