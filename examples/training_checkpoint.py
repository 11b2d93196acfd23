"""Checkpoints of distributed training: each process writes a shard, and one commit shows all of them.

A reader never sees a part of a checkpoint, whatever process dies, and `load` finds the newest whole one.
See docs/recipes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from commitlog import connect
from commitlog.errors import JobAlreadyCommitted
from commitlog.outputs import Job, Output, StagedFile

__all__ = ["load", "save", "stage_shard"]


def stage_shard(url: str, job: Job, rank: int, shard: bytes) -> StagedFile:
    """Write the shard of a process, which no reader sees yet. Runs in that process."""
    with connect(url) as store:
        name = f"rank={rank}/{job.file_name(rank, suffix='.bin')}"
        return Output(store).stage(job, name, shard, partition={"rank": str(rank)})


def save(url: str, step: int, shards: Sequence[bytes]) -> int:
    """Save the checkpoint of a step from a process for each shard; return its version.

    With ``torch.distributed``, rank 0 calls `Output.begin` and broadcasts the job, each rank stages its
    own shard, and rank 0 gathers the staged files and commits. The pool stands for the ranks here.
    """
    with connect(url) as store:
        output = Output(store)
        try:
            job = output.begin(f"step-{step}", mode="overwrite", visibility="logged")
        except JobAlreadyCommitted as error:
            return error.version
        try:
            with ProcessPoolExecutor(len(shards), get_context("spawn")) as ranks:
                count = len(shards)
                files = list(ranks.map(stage_shard, [url] * count, [job] * count, range(count), shards))
            return output.commit(job, files).version
        except BaseException:
            output.abort(job)
            raise


def load(url: str, version: int | None = None) -> tuple[int, Mapping[int, bytes]]:
    """Return the step and the shards, by rank, of the newest whole checkpoint, or of a `version`.

    Older checkpoints can be loaded until `Output.gc` removes them. Raises `NotFound` for a version that
    does not exist, and `LookupError` if there is no checkpoint yet.
    """
    with connect(url) as store:
        output = Output(store)
        snapshot = output.snapshot(version)
        if not snapshot.jobs:
            raise LookupError(f"there is no checkpoint at {url}")
        shards = {
            int(file.partition["rank"] or 0): store.get(output.locate(file)).data
            for file in snapshot.files
        }
        return int(snapshot.jobs[-1].removeprefix("step-")), shards
