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
    "attempt_tag",
    "find_attempt_tag",
    "find_job",
    "part_name",
    "replaced_jobs_of",
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
        existing: the entry at that path.
        job: the directory of the job, or the one that replaced it; None if the job is not known.
        replaced: the `attempt_tag` of the attempt that was published, if the job was replaced.
    """

    existing: Status | None
    job: Status | None = None
    replaced: str | None = None

    def published_by(self, directory: str) -> Status | None:
        """Return `job` if the published attempt is the one whose directory has this id."""
        if self.job is None or (self.job.id != directory and self.replaced != attempt_tag(directory)):
            return None
        return self.job


def find_job(namespace: Namespace, target: str, job_id: str) -> FoundJob:
    """Return the state of a job at a path. Raises `NotADirectory` if a file is there."""
    try:
        existing = namespace.stat(target)
    except NotFound:
        return FoundJob(existing=None)
    if not existing.is_directory:
        raise NotADirectory(f"{target!r} is a file: a job is published as a directory")
    if existing.attributes.get(JOB) == job_id:
        return FoundJob(existing=existing, job=existing)
    jobs = existing.attributes.get(REPLACED_JOBS, "")
    if (replaced := find_attempt_tag(job_id, jobs)) is not None:
        return FoundJob(existing=existing, job=existing, replaced=replaced)
    with contextlib.suppress(NotFound):
        return FoundJob(existing=existing, job=namespace.stat(join(target, part_name(job_id))))
    return FoundJob(existing=existing)


def part_name(job_id: str) -> str:
    """Return the name of a job's directory within the directory to which the job is added.

    >>> part_name("daily-2026-11-21")
    'job-37307013d4814c9fb46a96cb7f4fa06e'
    """
    return f"job-{_digest(job_id).hex()[:32]}"


def attempt_tag(directory: str) -> str:
    """Return the tag of an attempt in the memory of a directory, given the id of its directory."""
    return _shown(_digest(directory)[:_TAG_BYTES])


def find_attempt_tag(job_id: str, jobs: str) -> str | None:
    """Return the tag of the attempt that published a job, if `jobs` has the job, or None."""
    wanted = _shown(_digest(job_id)[:_JOB_BYTES])
    return next((each[_JOB_CHARACTERS:] for each in _split_jobs(jobs) if each.startswith(wanted)), None)


def replaced_jobs_of(existing: Status, entries: Callable[[str], Iterator[Status]]) -> str:
    """Return the value of `REPLACED_JOBS` for the directory that replaces `existing`.

    Args:
        existing: a directory, as a job found it or made it.
        entries: yields the entries of `existing` whose names follow its argument, sorted by name.
    """
    remembered = _split_jobs(existing.attributes.get(REPLACED_JOBS, ""))
    if JOB in existing.attributes:
        remembered.append(_remembered_job(_digest(existing.attributes[JOB]), existing))
    found = (each for each in _until(entries("job-"), "job.") if _PART.fullmatch(each.name))
    # These jobs were added after the directory was made, so they are newer than its remembered jobs.
    newest = heapq.nlargest(REMEMBERED, found, key=lambda each: (each.updated, each.name))
    remembered += [_remembered_job(bytes.fromhex(each.name[4:]), each) for each in reversed(newest)]
    return "".join(remembered[-REMEMBERED:])


def _until(entries: Iterator[Status], end: str) -> Iterator[Status]:
    for each in entries:
        if each.name >= end:
            return
        yield each


def _split_jobs(jobs: str) -> list[str]:
    return [jobs[at : at + _CHARACTERS] for at in range(0, len(jobs), _CHARACTERS)]


def _remembered_job(digest: bytes, directory: Status) -> str:
    return _shown(digest[:_JOB_BYTES]) + attempt_tag(directory.id)


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()


def _shown(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
