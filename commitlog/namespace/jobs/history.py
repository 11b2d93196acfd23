"""The jobs that a directory has published, and those that it remembers after they were overwritten.

::

    events               attribute commitlog.job             the job that made it
                         attribute commitlog.replaced-jobs   jobs of the directories that it replaced
    events/job-<digest>                                      a job that added to it

A replaced job is remembered as 16 characters: a digest of its id, and one of its attempt. They are an
attribute, so they are renamed, logged and restored with the directory.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import heapq
import re
from collections.abc import Callable, Iterator

from attrs import frozen

from commitlog.errors import NotADirectory, NotFound
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.status import Status
from commitlog.paths import join

__all__ = [
    "JOB",
    "REMEMBERED",
    "REPLACED_JOBS",
    "FoundJob",
    "attempt_at",
    "find_job",
    "jobs_of",
    "part_of",
    "tag_of",
]

#: Attribute of a directory: the id of the job that made it.
JOB = "commitlog.job"

#: Attribute of a directory: the jobs of the directories that it has replaced, the newest last.
REPLACED_JOBS = "commitlog.replaced-jobs"

#: Number of replaced jobs that a directory remembers. They take 3,200 bytes. So a lookup through the
#: directory still reads one or two units of 4 KB, and the item stays far below its limit of 400 KB.
REMEMBERED = 200

_PART = re.compile(r"job-([0-9a-f]{32})")
_JOB_BYTES, _TAG_BYTES = 9, 3
_JOB_CHARACTERS, _CHARACTERS = 12, 16


@frozen(kw_only=True)
class FoundJob:
    """The state of a job at the path where it is to be published.

    Attributes:
        there: the entry at that path.
        job: the directory of the job, or the one that replaced it; None if the job is not known.
        replaced: the `tag_of` the attempt that was published, if the job was replaced.
    """

    there: Status | None
    job: Status | None = None
    replaced: str | None = None

    def of(self, directory: str) -> Status | None:
        """Return `job` if the published attempt is the one whose directory has this id."""
        if self.job is None or (self.job.id != directory and self.replaced != tag_of(directory)):
            return None
        return self.job


def find_job(lake: Namespace, target: str, job_id: str) -> FoundJob:
    """Return the state of a job at a path. Raises `NotADirectory` if a file is there."""
    try:
        there = lake.stat(target)
    except NotFound:
        return FoundJob(there=None)
    if not there.is_directory:
        raise NotADirectory(f"{target!r} is a file: a job is published as a directory")
    if there.attributes.get(JOB) == job_id:
        return FoundJob(there=there, job=there)
    jobs = there.attributes.get(REPLACED_JOBS, "")
    if (replaced := attempt_at(job_id, jobs)) is not None:
        return FoundJob(there=there, job=there, replaced=replaced)
    with contextlib.suppress(NotFound):
        return FoundJob(there=there, job=lake.stat(join(target, part_of(job_id))))
    return FoundJob(there=there)


def part_of(job_id: str) -> str:
    """Return the name of a job's directory within the directory to which the job is added.

    >>> part_of("daily-2026-11-21")
    'job-37307013d4814c9fb46a96cb7f4fa06e'
    """
    return f"job-{_digest(job_id).hex()[:32]}"


def tag_of(directory: str) -> str:
    """Return the tag of an attempt in the memory of a directory, given the id of its directory."""
    return _shown(_digest(directory)[:_TAG_BYTES])


def attempt_at(job_id: str, jobs: str) -> str | None:
    """Return the tag of the attempt that published a job, if `jobs` has the job, or None."""
    wanted = _shown(_digest(job_id)[:_JOB_BYTES])
    return next((mark[_JOB_CHARACTERS:] for mark in _marks(jobs) if mark.startswith(wanted)), None)


def jobs_of(there: Status, entries: Callable[[str], Iterator[Status]]) -> str:
    """Return the value of `REPLACED_JOBS` for the directory that replaces `there`.

    Args:
        there: a directory, as a job found it or made it.
        entries: yields the entries of `there` whose names follow its argument, sorted by name.
    """
    marks = _marks(there.attributes.get(REPLACED_JOBS, ""))
    if JOB in there.attributes:
        marks.append(_mark(_digest(there.attributes[JOB]), there))
    found = (each for each in _until(entries("job-"), "job.") if _PART.fullmatch(each.name))
    # These jobs were added after the directory was made, so they are newer than its remembered jobs.
    newest = heapq.nlargest(REMEMBERED, found, key=lambda each: (each.updated, each.name))
    marks += [_mark(bytes.fromhex(each.name[4:]), each) for each in reversed(newest)]
    return "".join(marks[-REMEMBERED:])


def _until(entries: Iterator[Status], end: str) -> Iterator[Status]:
    for each in entries:
        if each.name >= end:
            return
        yield each


def _marks(jobs: str) -> list[str]:
    return [jobs[at : at + _CHARACTERS] for at in range(0, len(jobs), _CHARACTERS)]


def _mark(digest: bytes, directory: Status) -> str:
    return _shown(digest[:_JOB_BYTES]) + tag_of(directory.id)


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()


def _shown(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
