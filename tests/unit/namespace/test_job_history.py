"""A directory remembers the newest of the jobs that were overwritten, in bounded space."""

from __future__ import annotations

from collections.abc import Iterator

from commitlog.namespace.jobs.history import (
    JOB,
    REMEMBERED,
    REPLACED_JOBS,
    attempt_tag,
    find_attempt_tag,
    part_name,
    replaced_jobs_of,
)
from commitlog.namespace.model.records import Entry
from commitlog.namespace.status import Status
from commitlog.tables.api import Key


def directory(name: str, *, updated: int = 0, made: str | None = None, replaced: str = "") -> Status:
    """Return a directory made by a job, with the history of the jobs that it replaced."""
    attributes = {REPLACED_JOBS: replaced} if made is None else {REPLACED_JOBS: replaced, JOB: made}
    entry = Entry(
        key=Key("p", name),
        id=f"id of {name}",
        version=1,
        change_id="w",
        created=0,
        modified=0,
        updated=updated,
        attributes=attributes,
    )
    return Status(path=name, entry=entry)


def known(jobs: str, numbers: range) -> list[int]:
    """Return the numbers of the jobs that the history has."""
    return [number for number in numbers if find_attempt_tag(str(number), jobs) is not None]


def listing(*names: str) -> Iterator[Status]:
    """Yield directories; fail if more are requested."""
    for name in names:
        yield directory(name)
    raise AssertionError("nothing there is a job")


def test_the_jobs_of_a_directory() -> None:
    """These are the job that made it, the jobs that were added, and the remembered jobs."""

    def entries(after: str) -> Iterator[Status]:
        assert after == "job-"
        return listing("job-1", part_name("added"), f"{part_name('no')}x", "job.x")

    before = replaced_jobs_of(directory("old", made="first"), lambda after: iter(()))
    jobs = replaced_jobs_of(directory("out", made="made", replaced=before), entries)
    assert find_attempt_tag("first", jobs) == attempt_tag("id of old")
    assert find_attempt_tag("made", jobs) == attempt_tag("id of out")
    assert find_attempt_tag("added", jobs) == attempt_tag(f"id of {part_name('added')}")
    assert find_attempt_tag("no", jobs) is None
    assert len(jobs) == 3 * 16


def test_the_newest_jobs_are_kept() -> None:
    """The jobs that were added come first; older ones are kept while there is space."""
    parts = [directory(part_name(str(at)), updated=at) for at in range(REMEMBERED + 50)]
    jobs = replaced_jobs_of(
        directory("out", made="made"), lambda after: iter(sorted(parts, key=lambda each: each.name))
    )
    assert known(jobs, range(REMEMBERED + 50)) == list(range(50, REMEMBERED + 50))
    assert find_attempt_tag("made", jobs) is None
    assert len(jobs) == 16 * REMEMBERED == 3200
    later = replaced_jobs_of(directory("out", made="later", replaced=jobs), lambda after: iter(()))
    assert known(later, range(REMEMBERED + 50)) == list(range(51, REMEMBERED + 50))
    assert find_attempt_tag("later", later) is not None
