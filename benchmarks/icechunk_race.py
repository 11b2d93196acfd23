#!/usr/bin/env python
"""Icechunk alone on stores with and without preconditions: how many of its commits are lost.

    pip install icechunk zarr
    python benchmarks/icechunk_race.py

On each server, processes commit new arrays to one branch at the same time. Icechunk reports each commit
as done or refused. A commit is lost if it was reported as done and its array is not in the branch
afterwards. Icechunk is not a dependency of the project, so this is no part of `./run bench`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from servers import Juicefs, Ministack, Seaweedfs

PROCESSES, COMMITS = 4, 6

#: Seconds for all commits of one process.
TIMEOUT = 300


def _repository(place: Mapping[str, str], *, create: bool = False) -> Any:
    import icechunk

    storage = icechunk.s3_storage(
        bucket=place["bucket"],
        prefix="repository",
        endpoint_url=place["endpoint_url"],
        region=place["region"],
        access_key_id=place["access_key_id"],
        secret_access_key=place["secret_access_key"],
        allow_http=True,
        force_path_style=True,
    )
    return icechunk.Repository.create(storage) if create else icechunk.Repository.open(storage)


def _create(place: Mapping[str, str]) -> list[str]:
    import zarr

    session = _repository(place, create=True).writable_session("main")
    zarr.create_group(session.store)
    session.commit("an empty group")
    return []


def _write(place: Mapping[str, str], writer: str) -> list[str]:
    """Commit arrays; return the names of those that Icechunk reported as committed."""
    import icechunk
    import zarr

    repository = _repository(place)
    print("ready", flush=True)
    sys.stdin.readline()
    done = []
    for number in range(COMMITS):
        session = repository.writable_session("main")
        name = f"array-{writer}-{number}"
        zarr.create_array(session.store, name=name, shape=(2,), dtype="i4")
        try:
            session.commit(name, rebase_with=icechunk.ConflictDetector(), rebase_tries=100)
        except icechunk.IcechunkError as error:
            print(f"{name} was refused: {error}", file=sys.stderr)
        else:
            done.append(name)
    return done


def _read(place: Mapping[str, str]) -> list[str]:
    """Return the names of the arrays in the branch."""
    import zarr

    session = _repository(place).readonly_session("main")
    return sorted(zarr.open_group(session.store, mode="r").array_keys())


_STEPS = {"create": _create, "write": _write, "read": _read}


def _start(place: Mapping[str, str], *step: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, json.dumps(place), *step]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=TIMEOUT)
    if process.returncode:
        sys.exit(f"a step ended with exit status {process.returncode}")
    return json.loads(output.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    """Race on each server, and print one line for each."""
    for kind in (Juicefs, Seaweedfs, Ministack):
        with kind() as server:
            place = {**server.options, "bucket": server.new_bucket()}
            _result(_start(place, "create"))
            writers = [_start(place, "write", str(number)) for number in range(PROCESSES)]
            for writer in writers:
                assert writer.stdout is not None and writer.stdin is not None
                writer.stdout.readline()
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write("\n")
                writer.stdin.flush()
            done = [name for writer in writers for name in _result(writer)]
            there = set(_result(_start(place, "read")))
            lost = sum(name not in there for name in done)
            print(
                f"{kind.__name__}: {len(done)} commits reported as done, {lost} of them lost", flush=True
            )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        place, step, *arguments = sys.argv[1:]
        print(json.dumps(_STEPS[step](json.loads(place), *arguments)))
    else:
        main()
