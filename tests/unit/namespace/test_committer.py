"""Publishing a job: all of it or nothing, and once, whatever fails or runs at the same time.

In these tests a *job* is begun, stores a file for each of its names, and is published.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from attrs import define, field

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    InvalidPath,
    JobAborted,
    JobAlreadyCommitted,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Data, Namespace
from commitlog.namespace.jobs.committer import (
    STAGING_AGE,
    Attempt,
    DirectoryCommitter,
    Mode,
    abort_stale_attempts,
)
from commitlog.namespace.jobs.history import JOB, REPLACED_JOBS
from commitlog.namespace.model import keys
from commitlog.namespace.model.keys import STAGING
from commitlog.namespace.status import Status
from commitlog.stores.memory import MemoryStore
from commitlog.tables.memory import MemoryTable
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable, objects_in, outcome

LAKE = "lake"
NAMES = ("a", "b", "p=1/c")

#: Performs a request, or not; may raise. Its arguments are the request's name and a function that sends
#: it.
Step = Callable[[str, Callable[[], object]], object]

#: The errors of two drivers; None for a success.
Outcomes = list[tuple[type[CommitError] | None, type[CommitError] | None]]


@define
class Disturbed:
    """Acts instead of one request, or of all requests from one on."""

    at: int
    act: Step
    lasting: bool = False
    reached: bool = False
    _count: int = 0

    def __call__(self, what: str, perform: Callable[[], object]) -> None:
        number, self._count = self._count, self._count + 1
        if number == self.at or (self.lasting and number > self.at):
            self.reached = True
            self.act(what, perform)
        else:
            perform()


class Dies(BaseException):
    """The end of a driver's process."""


class Driver(DirectoryCommitter):
    """A committer of `out` whose connection to the table can be disturbed."""

    def __init__(self, lake: Namespace, clock: ManualClock, wire: InterceptedTable) -> None:
        super().__init__(lake, "out", clock=clock, backoff=QUICK)
        self.wire = wire


@define
class Site:
    """A namespace and its drivers; its table supports idempotency tokens or not."""

    tokens: bool = True
    clock: ManualClock = field(factory=ManualClock)
    table: MemoryTable = field(init=False)
    store: MemoryStore = field(init=False)
    lake: Namespace = field(init=False)
    auditor: Auditor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.table = ServiceTable(clock=self.clock)
        if not self.tokens:
            self.table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=self.clock)
            self.table.create()
        self.store = MemoryStore(clock=self.clock)
        self.lake = Namespace(self.table, self.store, LAKE, clock=self.clock, backoff=QUICK, grace=60)
        self.lake.create()
        self.auditor = Auditor(self.table, LAKE, self.store)

    def driver(self) -> Driver:
        """Return a committer of `out` whose connection to the table can be disturbed."""
        wire = InterceptedTable(self.table)
        lake = Namespace(wire, self.store, LAKE, clock=self.clock, backoff=QUICK, grace=60)
        lake.describe()
        return Driver(lake, self.clock, wire)

    def put(self, text: str) -> Data:
        """Store an object, as a task does."""
        with self.lake.open_writer("never") as writer:
            writer.write(text.encode())
            return writer.finish()

    def files(self, word: str, names: Iterable[str] = NAMES) -> dict[str, Data]:
        """Return files that a job has stored; the content of each is the word and its name."""
        return {f"{name}-{word}": self.put(f"{word} {name}") for name in names}

    def rows(self, path: str = "out") -> list[str]:
        """Return the sorted contents of all files at `path`; an empty list if it does not exist."""
        try:
            found = [each for each in self.lake.walk(path) if not each.is_directory]
        except NotFound:
            return []
        return sorted(self.lake.read(each.path).decode() for each in found)

    def staged(self) -> list[str]:
        """Return the names of the attempts in progress."""
        return [each.name for each in self.lake.list(STAGING)] if self.lake.exists(STAGING) else []

    def audit(self) -> None:
        """Check all invariants."""
        self.auditor.audit()


def rows_of(*words: str) -> list[str]:
    """Return the contents of the files of these jobs."""
    return sorted(f"{word} {name}" for word in words for name in NAMES)


def run(
    publication: DirectoryCommitter, files: Mapping[str, Data], job: str, mode: Mode = "append"
) -> Status:
    """Run a job from beginning to end."""
    return publication.publish(publication.begin(job, mode=mode), files)


# -- modes -------------------------------------------------------------------------------------------


def test_a_job_becomes_the_directory() -> None:
    """If the target does not exist, the job's directory moves there, and its parents are made."""
    site = Site()
    publication = DirectoryCommitter(site.lake, "deep/er/out", clock=site.clock)
    attempt = publication.begin("one")
    assert site.rows("deep") == [] and site.staged() == [attempt.staging.rpartition("/")[2]]
    done = publication.publish(attempt, site.files("x"))
    assert (done.path, done.id) == ("deep/er/out", attempt.id)
    assert done.attributes[JOB] == "one"
    assert site.rows("deep/er/out") == rows_of("x")
    assert site.lake.read("deep/er/out/p=1/c-x") == b"x p=1/c"
    assert site.staged() == []
    site.audit()


def test_a_job_adds_to_a_directory() -> None:
    """The existing files stay, under their names."""
    site = Site()
    site.lake.write("out/by-hand", b"h")
    for job in ("one", "two"):
        done = run(site.driver(), site.files(job), job)
        assert done.path.startswith("out/job-")
    assert site.rows() == sorted(["h", *rows_of("one", "two")])
    site.audit()


def test_a_job_replaces_a_directory() -> None:
    """All old files are gone at once; readers that have opened them can read for the grace period."""
    site = Site()
    run(site.driver(), site.files("old"), "one")
    opened = site.lake.open("out/a-old")
    run(site.driver(), site.files("new"), "two", "overwrite")
    assert site.rows() == rows_of("new")
    site.lake.maintenance.empty_trash()
    site.lake.maintenance.gc()
    assert opened.read() == b"old a"
    site.clock.advance(61)
    assert site.lake.maintenance.gc().objects == len(NAMES)
    site.audit()


def test_an_overwritten_job_is_not_published_again() -> None:
    """This holds in every mode, for every client, and after a rename; deleting the directory ends it."""
    site = Site()
    run(site.driver(), site.files("1"), "1")
    late = site.driver()
    attempts = [late.begin("2", mode="append"), late.begin("2", mode="overwrite")]
    run(site.driver(), site.files("2"), "2")
    for job in ("3", "4"):
        run(site.driver(), site.files(job), job, "overwrite")
    for attempt in attempts:
        with pytest.raises(JobAlreadyCommitted, match="job '2' was at 'out', and overwritten"):
            late.publish(attempt, site.files("late"))
        assert late.find(attempt) is None
        assert late.abort(attempt)
    site.lake.rename("out", "elsewhere")
    for job in ("1", "2", "3", "4"):
        for mode in get_args(Mode):
            begin = DirectoryCommitter(site.lake, "elsewhere").begin
            assert outcome(partial(begin, job, mode=mode)) is JobAlreadyCommitted
    assert site.rows("elsewhere") == rows_of("4") and site.staged() == []
    site.audit()
    site.lake.delete("elsewhere", recursive=True)
    run(site.driver(), site.files("again"), "1")
    assert site.rows() == rows_of("again")


def test_mode_error_refuses_an_existing_target() -> None:
    """It is refused when the job begins and when it is published."""
    site = Site()
    late = site.driver()
    attempt = late.begin("late", mode="error")
    run(site.driver(), site.files("first"), "first", "error")
    with pytest.raises(AlreadyExists, match="the mode is 'error'"):
        site.driver().begin("later", mode="error")
    with pytest.raises(AlreadyExists, match="the mode is 'error'"):
        late.publish(attempt, site.files("late"))
    assert late.abort(attempt)
    assert site.rows() == rows_of("first") and site.staged() == []
    site.audit()


def test_a_job_without_files_is_published() -> None:
    """Its empty directory marks it as published."""
    site = Site()
    assert run(site.driver(), {}, "one").is_directory
    assert outcome(lambda: site.driver().begin("one")) is JobAlreadyCommitted


def test_many_files_become_visible_at_once() -> None:
    """The files are linked in many transactions before the commit point; readers see all or none."""
    site = Site()
    files = {f"p={n % 7}/q={n % 3}/part-{n}": site.put(str(n)) for n in range(250)}
    files |= {f"part-{n}": site.put(str(n)) for n in range(250, 1300)}
    driver = site.driver()
    done = run(driver, files, "one")
    assert done.entry.shards.now == 2
    # Names are not looked up one by one.
    assert driver.namespace.request_stats.operations["bulk_link"].gets < 300
    assert site.rows() == sorted(map(str, range(1300)))
    site.audit()


def test_an_attempt_can_be_pickled() -> None:
    """Driver and workers are different processes."""
    site = Site()
    attempt = site.driver().begin("one")
    assert pickle.loads(pickle.dumps(attempt)) == attempt


@pytest.mark.parametrize("table", ["memory", "sqlite"])
def test_all_modes_on_local_tables(table: str, tmp_path: Path) -> None:
    """This covers every kind of table that needs no server."""
    names = open_table(
        "memory://" if table == "memory" else f"sqlite://{tmp_path}/n.db", NAMESPACE_SCHEMA
    )
    names.create()
    with Namespace(names, MemoryStore(), LAKE) as lake:
        lake.create()
        for job, mode in (("1", "error"), ("2", "append"), ("3", "overwrite"), ("4", "append")):
            publication = DirectoryCommitter(lake, "out")
            attempt = publication.begin(job, mode=mode)  # type: ignore[arg-type]
            with lake.open_writer("never") as writer:
                writer.write(job.encode())
                data = writer.finish()
            publication.publish(attempt, {f"f{job}": data})
        files = [found.path for found in lake.walk("out") if not found.is_directory]
        assert sorted(map(lake.read, files)) == [b"3", b"4"]
        for job in ("1", "2", "3", "4"):
            assert outcome(partial(DirectoryCommitter(lake, "out").begin, job)) is JobAlreadyCommitted


# -- refusals ----------------------------------------------------------------------------------------


def test_listings_of_the_root_skip_unpublished_jobs() -> None:
    """Readers that list or walk the namespace do not see unpublished jobs; their paths can be read."""
    site = Site()
    attempt = site.driver().begin("job")
    lake = site.lake
    lake.write("z", b"1")
    assert lake.stat(attempt.staging).id == attempt.id
    assert [found.name for found in lake.list()] == ["z"]
    page = lake.list_page(limit=1)
    assert [found.name for found in page.entries] == ["z"]
    assert page.next_token is None
    assert [found.path for found in lake.walk()] == ["z"]
    assert lake.summary().directories == 1
    assert site.staged() == [attempt.staging.rpartition("/")[2]]


@pytest.mark.parametrize("target", ["", STAGING, f"{STAGING}/x", "a//b"])
def test_invalid_targets_are_refused(target: str) -> None:
    """A job cannot be the root, or in the staging directory."""
    with pytest.raises(InvalidPath):
        DirectoryCommitter(Site().lake, target)


def test_invalid_jobs_are_refused() -> None:
    """A blank or non-text id, an unknown mode, or a file at the target is refused; nothing is begun."""
    site = Site()
    for bad in (" ", "\ud800", b"job", 5):
        assert outcome(lambda: site.driver().begin(bad)) is ConfigurationError  # type: ignore[arg-type]  # noqa: B023
    assert outcome(lambda: site.driver().begin(mode="nope")) is ConfigurationError  # type: ignore[arg-type]
    site.lake.write("out", b"file")
    assert outcome(lambda: site.driver().begin()) is NotADirectory
    assert (
        outcome(lambda: DirectoryCommitter(site.lake, "out/none/x", clock=site.clock).begin())
        is NotADirectory
    )
    assert site.staged() == []


def test_invalid_files_are_refused() -> None:
    """Refused are invalid paths, a path below a file, and one object in two files.

    They are refused before any file is linked, so the same attempt can be published with correct files.
    """
    site = Site()
    driver = site.driver()
    attempt = driver.begin("job")
    one, two = site.put("1"), site.put("2")
    refused: dict[type[CommitError], list[dict[str, Data]]] = {
        InvalidPath: [{"/a": one, "a": two}, {"a//b": one}, {"../a": one}, {"a": one, "": two}],
        NotADirectory: [{"a": one, "a/b": two}],
        ConfigurationError: [{"a/x": one, "b/x": one}],
    }
    for kind, all_files in refused.items():
        for files in all_files:
            assert outcome(lambda: driver.publish(attempt, files)) is kind  # noqa: B023
            assert list(site.lake.list(attempt.staging)) == []
    driver.publish(attempt, {"a/x": one, "b/x": two})
    assert site.rows() == ["1", "2"]
    site.audit()


# -- schema checks -----------------------------------------------------------------------------------


def test_check_schema_returns_the_attributes_of_the_directory() -> None:
    """They are the result of `check_schema`, which gets the directory, or None."""
    site = Site()
    seen: list[str | None] = []

    def fit(columns: str, there: Status | None) -> dict[str, str]:
        before = "" if there is None else there.attributes.get("columns", "")
        seen.append(None if there is None else before)
        return {"columns": "".join(sorted({*before, *columns}))}

    def publish(columns: str, job: str, mode: Mode = "append") -> Status:
        publication = site.driver()
        fits = partial(fit, columns)
        attempt = publication.begin(job, mode=mode, check_schema=fits)
        return publication.publish(attempt, site.files(job), check_schema=fits)

    publish("ab", "1")
    assert site.lake.stat("out").attributes == {JOB: "1", "columns": "ab"}
    part = publish("bc", "2")
    assert part.attributes == {JOB: "2", "columns": "bc"}
    assert site.lake.stat("out").attributes == {JOB: "1", "columns": "abc"}
    publish("d", "3", "overwrite")
    kept = dict(site.lake.stat("out").attributes)
    assert kept.pop(REPLACED_JOBS)
    assert kept == {JOB: "3", "columns": "d"}
    assert seen == [None, None, "ab", None, "ab", None, None]


def test_rows_that_do_not_fit_are_refused() -> None:
    """They are refused when the job begins, or before the commit point if the target was made since."""
    site = Site()

    def refuse(there: Status | None) -> Mapping[str, str]:
        if there is not None:
            raise ConfigurationError("other columns")
        return {}

    first, second = site.driver(), site.driver()
    one, two = first.begin("1", check_schema=refuse), second.begin("2", check_schema=refuse)
    first.publish(one, site.files("1"), check_schema=refuse)
    with pytest.raises(ConfigurationError, match="other columns"):
        second.publish(two, site.files("2"), check_schema=refuse)
    assert second.abort(two)
    with pytest.raises(ConfigurationError, match="other columns"):
        site.driver().begin("3", check_schema=refuse)
    assert site.rows() == rows_of("1") and site.staged() == []
    site.audit()


def test_two_jobs_with_different_columns() -> None:
    """The directory ends up with the columns of both, whatever each found when it began."""

    def fit(column: str, there: Status | None) -> dict[str, str]:
        before = "" if there is None else there.attributes.get("columns", "")
        return {"columns": "".join(sorted({*before, column}))}

    def publish(publication: DirectoryCommitter, attempt: Attempt, files: Mapping[str, Data]) -> None:
        publication.publish(attempt, files, check_schema=partial(fit, attempt.job_id))

    for site in interleaved("a", "b", publish=publish, before="0"):
        assert set(site.lake.stat("out").attributes["columns"]) >= {"a", "b"}
        assert site.rows() == rows_of("0", "a", "b")


def test_rows_must_fit_a_directory_that_was_replaced_meanwhile() -> None:
    """The rows are checked against the current directory, not the earlier one."""
    columns = {"before": "a", "x": "a", "y": "b"}

    def fit(job: str, there: Status | None) -> dict[str, str]:
        known = "" if there is None else there.attributes["columns"]
        return {"columns": "".join(sorted({*known, columns[job]}))}

    def publish(publication: DirectoryCommitter, attempt: Attempt, files: Mapping[str, Data]) -> None:
        publication.publish(attempt, files, check_schema=partial(fit, attempt.job_id))

    seen = set()
    for site in interleaved("x", "y", publish=publish, before="before", modes=("append", "overwrite")):
        there = site.lake.stat("out").attributes["columns"]
        assert there == ("ab" if "x a" in site.rows() else "b")
        seen.add(there)
    assert len(seen) == 2


# -- two drivers -------------------------------------------------------------------------------------


def plain(publication: DirectoryCommitter, attempt: Attempt, files: Mapping[str, Data]) -> None:
    """Publish a job."""
    publication.publish(attempt, files)


def interleaved(
    one: str,
    other: str,
    *,
    before: str | None = None,
    modes: tuple[Mode, Mode] = ("append", "append"),
    publish: Callable[[DirectoryCommitter, Attempt, Mapping[str, Data]], None] = plain,
    reported: Outcomes | None = None,
) -> Iterator[Site]:
    """Yield the site after two jobs, when one is published before each request of the other."""
    reported = [] if reported is None else reported
    for at in count():
        site = Site()
        if before is not None:
            first = site.driver()
            publish(first, first.begin(before), site.files(before))
        if not _meet(site, at, (one, other), modes, publish, reported):
            site.audit()
            yield site
            return
        site.audit()
        yield site


def _meet(
    site: Site,
    at: int,
    jobs: tuple[str, str],
    modes: tuple[Mode, Mode],
    publish: Callable[[DirectoryCommitter, Attempt, Mapping[str, Data]], None],
    reported: Outcomes,
) -> bool:
    """Publish a job before request `at` of another one, or after it; return whether it got there."""
    drivers = site.driver(), site.driver()
    files = [site.files(job) for job in jobs]
    attempts = [
        driver.begin(job, mode=mode) for driver, job, mode in zip(drivers, jobs, modes, strict=True)
    ]
    later: list[type[CommitError] | None] = []

    def other() -> None:
        later.append(outcome(lambda: publish(drivers[1], attempts[1], files[1])))

    def act(_: str, perform: Callable[[], object]) -> None:
        other()
        perform()

    with disturbing(drivers[0], Disturbed(at, act)) as disturbance:
        found = outcome(lambda: publish(drivers[0], attempts[0], files[0]))
    if not disturbance.reached:
        other()
    reported.append((found, later[0]))
    return disturbance.reached


@contextmanager
def disturbing(publication: Driver, disturbance: Disturbed) -> Iterator[Disturbed]:
    """Disturb a driver during the block."""
    publication.wire.step = disturbance
    try:
        yield disturbance
    finally:
        publication.wire.step = lambda _, perform: perform()


@pytest.mark.parametrize("before", [None, "before"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_one_of_two_attempts_at_a_job_succeeds(before: str | None, mode: Mode) -> None:
    """Whichever request the second one precedes, the other attempt gets `JobAlreadyCommitted`."""
    reported: Outcomes = []
    for site in interleaved("x", "x", before=before, modes=(mode, mode), reported=reported):
        kept = [before] if before is not None and mode == "append" else []
        assert site.rows() == rows_of("x", *kept)
        assert set(reported[-1]) == {None, JobAlreadyCommitted}
        assert len(site.staged()) == 1
    assert len(set(reported)) == 2


@pytest.mark.parametrize("modes", [("append", "overwrite"), ("overwrite", "append")])
def test_two_attempts_in_different_modes_publish_a_job_once(modes: tuple[Mode, Mode]) -> None:
    """The rows of the job exist once; earlier rows may be replaced."""
    reported: Outcomes = []
    for site in interleaved("x", "x", before="before", modes=modes, reported=reported):
        assert site.rows() in (rows_of("x"), rows_of("x", "before"))
        assert set(reported[-1]) == {None, JobAlreadyCommitted}


@pytest.mark.parametrize(
    "modes", [("append", "append"), ("append", "overwrite"), ("overwrite", "append")]
)
def test_an_attempt_is_refused_after_the_other_was_overwritten(modes: tuple[Mode, Mode]) -> None:
    """It gets `JobAlreadyCommitted`, whichever of its requests the overwrite precedes."""

    def publish(publication: DirectoryCommitter, attempt: Attempt, files: Mapping[str, Data]) -> None:
        publication.publish(attempt, files)
        if attempt.job_id == "x":
            later = publication.begin(mode="overwrite")
            publication.publish(later, {"later": publication.namespace._context.content.put(b"later")})

    reported: Outcomes = []
    for site in interleaved("x", "x", before="before", modes=modes, publish=publish, reported=reported):
        assert site.rows() == ["later"]
        assert set(reported[-1]) == {None, JobAlreadyCommitted}


def test_two_jobs_add_to_one_directory() -> None:
    """Both are published."""
    for before in (None, "before"):
        for site in interleaved("x", "y", before=before):
            assert site.rows() == rows_of("x", "y", *([before] if before else []))


def test_only_one_of_two_jobs_in_mode_error_is_published() -> None:
    """The other one gets `AlreadyExists`."""
    reported: Outcomes = []
    for site in interleaved("x", "y", modes=("error", "error"), reported=reported):
        assert site.rows() in (rows_of("x"), rows_of("y"))
        assert set(reported[-1]) == {None, AlreadyExists}
    assert len(set(reported)) == 2


@pytest.mark.parametrize("modes", [("append", "overwrite"), ("overwrite", "append")])
def test_an_append_and_an_overwrite_have_an_order(modes: tuple[Mode, Mode]) -> None:
    """The result is that of one job after the other."""
    seen = set()
    for site in interleaved("x", "y", before="before", modes=modes):
        replacing, adding = ("y", "x") if modes[0] == "append" else ("x", "y")
        assert site.rows() in (rows_of(replacing), rows_of(replacing, adding))
        seen.add(len(site.rows()))
        for job in ("before", "x", "y"):
            assert outcome(partial(site.driver().begin, job)) is JobAlreadyCommitted
    assert len(seen) == 2


def test_the_target_is_renamed_during_a_job() -> None:
    """All of the job is at the old path or at the new one."""

    def publish(publication: DirectoryCommitter, attempt: Attempt, files: Mapping[str, Data]) -> None:
        if attempt.job_id == "y":
            publication.namespace.rename("out", "elsewhere")
        else:
            publication.publish(attempt, files)

    places = set()
    for site in interleaved("x", "y", before="before", publish=publish):
        here, there = site.rows("out"), site.rows("elsewhere")
        assert sorted(here + there) == rows_of("before", "x")
        places.add("x a" in here)
        assert here in ([], rows_of("x"))
    assert places == {True, False}


# -- crashes and lost answers ------------------------------------------------------------------------


@define
class Interruption:
    """A job that was published despite a fault, and its state afterwards."""

    site: Site
    publication: DirectoryCommitter
    attempt: Attempt
    files: dict[str, Data]
    error: BaseException | None
    reached: bool

    def abort(self, publication: DirectoryCommitter | None = None) -> bool:
        """Abort the attempt."""
        return (publication or self.publication).abort(self.attempt, self.files)


def interruptions(
    mode: Mode, before: str | None, act: Step, *, lasting: bool = False
) -> Iterator[Interruption]:
    """Publish job ``x`` repeatedly, each time with an action instead of another request."""
    for at in count():
        site = Site()
        if before is not None:
            run(site.driver(), site.files(before), before)
        publication = site.driver()
        attempt = publication.begin("x", mode=mode)
        files = site.files("x")
        error: BaseException | None = None
        with disturbing(publication, Disturbed(at, act, lasting=lasting)) as disturbance:
            try:
                publication.publish(attempt, files)
            except (CommitError, Dies) as caught:
                error = caught
        yield Interruption(site, publication, attempt, files, error, disturbance.reached)
        if not disturbance.reached:
            return


CASES: list[tuple[Mode, str | None]] = [
    ("error", None),
    ("append", None),
    ("append", "before"),
    ("overwrite", "before"),
]


def results(mode: Mode, before: str | None) -> tuple[list[str], list[str]]:
    """Return the rows without job ``x``, and the rows with all of it."""
    there = [before] if before is not None else []
    return rows_of(*there), rows_of("x", *(there if mode == "append" else []))


@pytest.mark.parametrize(("mode", "before"), CASES)
@pytest.mark.parametrize("done", [False, True])
def test_a_crash_publishes_all_or_nothing(mode: Mode, before: str | None, done: bool) -> None:
    """At whatever request the driver dies, all of the job is published or none; then it is run again."""

    def die(_: str, perform: Callable[[], object]) -> None:
        if done:
            perform()
        raise Dies

    nothing, whole = results(mode, before)
    seen = []
    for interruption in interruptions(mode, before, die):
        site, again = interruption.site, interruption.site.driver()
        assert isinstance(interruption.error, Dies) == interruption.reached
        assert site.rows() in (nothing, whole)
        published = site.rows() == whole
        seen.append(published)
        assert interruption.abort(again) == (not published)
        retried = outcome(partial(run, again, site.files("x"), "x", mode))
        assert retried is (JobAlreadyCommitted if published else None)
        assert site.rows() == whole and site.staged() == []
        site.audit()
    assert seen == sorted(seen) and set(seen) == {False, True}


def lose(done: bool, what: str, perform: Callable[[], object]) -> None:
    """Perform a request or not, and lose its answer."""
    if done:
        perform()
    raise OutcomeUnknown("lost") if what == "transact" else Unavailable("gone")


@pytest.mark.parametrize(("mode", "before"), CASES)
@pytest.mark.parametrize("done", [False, True])
def test_a_lost_answer_publishes_once(mode: Mode, before: str | None, done: bool) -> None:
    """The driver learns that the job is published; if only a read failed, it can try again."""
    nothing, whole = results(mode, before)
    for interruption in interruptions(mode, before, partial(lose, done)):
        site, publication = interruption.site, interruption.publication
        if interruption.error is not None:
            assert isinstance(interruption.error, Unavailable)
            assert site.rows() == nothing
            publication.publish(interruption.attempt, interruption.files)
        assert site.rows() == whole
        assert publication.find(interruption.attempt) is not None
        assert not interruption.abort()
        site.audit()


@pytest.mark.parametrize(("mode", "before"), CASES)
@pytest.mark.parametrize("done", [False, True])
def test_an_unreachable_table_leaves_the_outcome_unknown(
    mode: Mode, before: str | None, done: bool
) -> None:
    """The outcome is unknown; an abort settles it when the table answers again."""
    heard: list[str] = []

    def hush(what: str, perform: Callable[[], object]) -> None:
        heard.append(what)
        lose(done and len(heard) == 1, what, perform)

    nothing, whole = results(mode, before)
    unknown = 0
    for interruption in interruptions(mode, before, hush, lasting=True):
        heard.clear()
        unknown += isinstance(interruption.error, OutcomeUnknown)
        published = not interruption.abort(interruption.site.driver())
        assert interruption.site.rows() == (whole if published else nothing)
        if interruption.error is None:
            assert published
        elif not isinstance(interruption.error, OutcomeUnknown):
            assert isinstance(interruption.error, Unavailable) and not published
        interruption.site.audit()
    assert unknown


@pytest.mark.parametrize("done", [False, True])
def test_the_table_is_unreachable_during_the_commit(done: bool) -> None:
    """Afterwards a published job is found; for an unpublished job the outcome is unknown."""
    site = Site()
    driver = site.driver()
    attempt, files = driver.begin("x"), site.files("x")
    rename = driver.namespace.rename
    heard: list[str] = []

    def hush(what: str, perform: Callable[[], object]) -> None:
        if heard or what == "transact":
            heard.append(what)
            lose(done and len(heard) == 1, what, perform)
        perform()

    def silent(*args: Any, **options: Any) -> Status:
        with disturbing(driver, Disturbed(0, hush, lasting=True)):
            return rename(*args, **options)

    driver.namespace.rename = silent  # type: ignore[method-assign]
    reported = outcome(lambda: driver.publish(attempt, files))
    assert reported is (None if done else OutcomeUnknown)
    assert driver.abort(attempt, files) == (not done)
    assert site.rows() == (rows_of("x") if done else [])
    site.audit()


@pytest.mark.parametrize("overwrites", [False, True])
@pytest.mark.parametrize(("mode", "before"), CASES)
def test_a_published_job_is_found_after_later_changes(
    mode: Mode, before: str | None, overwrites: bool
) -> None:
    """The answer is lost, and others change or overwrite the directory before the driver reads it."""
    site = Site(tokens=False)
    if before is not None:
        run(site.driver(), site.files(before), before)
    driver = site.driver()
    attempt, files = driver.begin("x", mode=mode), site.files("x")

    def act(what: str, perform: Callable[[], object]) -> None:
        perform()
        if what == "transact" and not site.lake.exists(attempt.staging):
            driver.wire.step = lambda _, perform: perform()
            site.lake.set_attributes("out", attributes={"seen": "yes"})
            if overwrites:
                run(site.driver(), site.files("y"), "y", "overwrite")
            raise OutcomeUnknown("lost")

    with disturbing(driver, Disturbed(0, act, lasting=True)):
        driver.publish(attempt, files)
    found = driver.publish(attempt, files)
    assert found == driver.find(attempt)
    assert (found.id == attempt.id) == (not overwrites)
    assert site.rows() == (rows_of("y") if overwrites else results(mode, before)[1])
    other = site.driver()
    assert outcome(lambda: other.begin("x")) is JobAlreadyCommitted
    site.audit()


# -- aborting ----------------------------------------------------------------------------------------


def test_a_job_is_published_or_aborted() -> None:
    """It is never both, at whatever request the abort runs, and each caller gets the outcome."""

    def publish(publication: DirectoryCommitter, attempt: Attempt, files: Mapping[str, Data]) -> None:
        if attempt.job_id == "x":
            mine.append(attempt)
            publication.publish(attempt, files)
        else:
            aborted.append(publication.abort(mine[-1]))

    mine: list[Attempt] = []
    aborted: list[bool] = []
    reported: Outcomes = []
    for site in interleaved("x", "y", publish=publish, reported=reported):
        assert reported[-1] == (JobAborted if aborted[-1] else None, None)
        assert site.rows() == ([] if aborted[-1] else rows_of("x"))
    assert set(aborted) == {True, False}


def test_an_abort_removes_the_objects() -> None:
    """Objects without a file are deleted at once, others with the trash after the grace period."""
    site = Site()
    publication = site.driver()
    files = site.files("x")
    attempt = publication.begin("x")
    assert publication.abort(attempt, files)
    assert not publication.abort(attempt, files)
    assert objects_in(site.store) == []
    assert outcome(lambda: publication.publish(attempt, files)) is JobAborted

    site = Site()
    publication = site.driver()
    attempt, files = publication.begin("x", mode="error"), site.files("x")
    site.lake.write("out/first", b"")
    assert outcome(lambda: publication.publish(attempt, files)) is AlreadyExists
    assert publication.abort(attempt, files)
    assert len(objects_in(site.store)) == 1 + len(NAMES)
    site.audit()
    site.lake.maintenance.empty_trash()
    site.clock.advance(61)
    site.lake.maintenance.gc()
    assert len(objects_in(site.store)) == 1
    site.audit()


def test_an_abort_during_publishing_leaves_files_to_the_trash() -> None:
    """No file loses its content while it exists."""
    site = Site()
    publication, other = site.driver(), site.driver()
    files = site.files("x", ("a",))
    attempt = publication.begin("x")

    def act(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            other.wire.step = lambda _, perform: perform()
            publication.namespace.set_attributes(attempt.staging, attributes={JOB: "x"})
            publication.namespace.bulk_link(attempt.staging, files)
        perform()

    other.wire.step = act
    assert other.abort(attempt, files)
    assert outcome(lambda: publication.publish(attempt, files)) is JobAborted
    site.audit()


def test_a_sweep_leaves_a_job_that_is_being_published() -> None:
    """This holds for an old job, too."""
    site = Site()
    publication, other = site.driver(), site.driver()
    attempt, files = publication.begin("x"), site.files("x")
    site.clock.advance(3600)

    def act(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            other.wire.step = lambda _, perform: perform()
            publication.namespace.set_attributes(attempt.staging, attributes={JOB: "x"})
        perform()

    other.wire.step = act
    assert abort_stale_attempts(other.namespace, older_than=3600, clock=site.clock) == 0
    publication.publish(attempt, files)
    assert site.rows() == rows_of("x")


def test_aborting_a_replaced_job_has_no_effect() -> None:
    """It is not aborted, and readers of the old directory can still read its files."""
    site = Site()
    publication = site.driver()
    attempt, files = publication.begin("x"), site.files("x")
    publication.publish(attempt, files)
    opened = site.lake.open("out/a-x")
    run(site.driver(), site.files("y"), "y", "overwrite")
    assert not publication.abort(attempt, files)
    assert opened.read() == b"x a"


def test_publishing_twice_has_one_result() -> None:
    """The second call finds the published directory."""
    site = Site()
    publication = site.driver()
    attempt, files = publication.begin("x"), site.files("x")
    done = publication.publish(attempt, files)
    assert publication.publish(attempt, files) == done
    assert site.rows() == rows_of("x")


@pytest.mark.parametrize("before", [None, "before"])
def test_an_attempt_is_published_twice_at_once(before: str | None) -> None:
    """Both calls find that it is published, at whatever request the second one runs."""
    for at in count():
        site = Site()
        if before is not None:
            run(site.driver(), site.files(before), before)
        first, second = site.driver(), site.driver()
        attempt, files = first.begin("x"), site.files("x")

        def act(_: str, perform: Callable[[], object]) -> None:
            assert second.publish(attempt, files).id == attempt.id  # noqa: B023
            perform()

        with disturbing(first, Disturbed(at, act)) as disturbance:
            assert first.publish(attempt, files).id == attempt.id
        assert site.rows() == rows_of("x", *([before] if before else []))
        site.audit()
        if not disturbance.reached:
            return


def test_old_unpublished_jobs_are_swept() -> None:
    """Any new job removes them, or a call does; a driver that wakes up later gets `JobAborted`."""
    site = Site()
    dead = site.driver()
    attempt = dead.begin("dead")
    site.clock.advance(3600)
    alive = site.driver().begin("alive")
    assert len(site.staged()) == 2
    assert abort_stale_attempts(site.lake, older_than=3600, clock=site.clock) == 1
    assert site.staged() == [alive.staging.rpartition("/")[2]]
    with pytest.raises(JobAborted, match="Run it again"):
        dead.publish(attempt, site.files("dead"))
    site.clock.advance(8 * 86400)
    later = site.driver().begin("later")
    assert site.staged() == [later.staging.rpartition("/")[2]]
    assert abort_stale_attempts(Site().lake, clock=site.clock) == 0


def test_an_attempt_that_is_too_old_is_not_published() -> None:
    """Even before it is swept, fsck may have taken its objects for orphans."""
    site = Site()
    driver = site.driver()
    attempt = driver.begin("x")
    files = site.files("x")
    site.clock.advance(STAGING_AGE)
    with pytest.raises(JobAborted, match="Run it again"):
        driver.publish(attempt, files)
    assert site.staged() == []
    assert site.rows() == []


def test_other_entries_of_the_staging_directory_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are from a version that allowed them, and are not swept at any age."""
    site = Site()
    with monkeypatch.context() as before:
        before.setattr(keys, "ATTEMPT", re.compile(".+"))
        site.lake.write(f"{STAGING}/models/m", b"precious")
    with pytest.raises(InvalidPath, match="jobs"):
        site.lake.write(f"{STAGING}/models/n", b"")
    site.clock.advance(2 * STAGING_AGE)
    site.driver().begin("x")
    assert site.lake.read(f"{STAGING}/models/m") == b"precious"


@pytest.mark.parametrize("mode", get_args(Mode))
def test_publishing_again_finds_a_renamed_directory(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver whose answer was lost gets the directory, with its current path.

    If the directory is renamed during the lookup, the outcome is unknown.
    """
    site = Site()
    driver = site.driver()
    attempt = driver.begin("x", mode=mode)
    files = site.files("x")
    driver.publish(attempt, files)
    site.lake.make_directory("b")
    site.lake.rename("out", "b/elsewhere")
    assert driver.publish(attempt, files).path == "b/elsewhere"
    site.lake.rename("b", "c")
    assert driver.publish(attempt, files).path == "c/elsewhere"
    assert site.rows("c/elsewhere") == rows_of("x")

    def look(id: str) -> str | None:
        path = Namespace.path_of(driver.namespace, id)
        site.lake.rename("c", "d")
        return path

    with monkeypatch.context() as patched:
        patched.setattr(driver.namespace, "path_of", look)
        with pytest.raises(OutcomeUnknown, match="publish it again"):
            driver.publish(attempt, files)
    assert driver.publish(attempt, files).path == "d/elsewhere"
    site.lake.delete("d", recursive=True)
    with pytest.raises(JobAborted, match="Run it again"):
        driver.publish(attempt, files)


def test_a_changed_directory_is_refused() -> None:
    """A rename into it and new attributes are refused, whatever has changed."""
    lake = Site().lake
    seen = lake.make_directory("d")
    lake.make_directory("x")
    lake.set_attributes("d", attributes={"a": "1"}, expected=seen)
    for stale in (
        lambda: lake.rename("x", "d/x", into=seen),
        lambda: lake.set_attributes("d", attributes={"a": "2"}, expected=seen),
    ):
        assert outcome(stale) is PreconditionFailed
    seen = lake.stat("d")
    lake.rename("d", "e")
    lake.make_directory("d")
    assert outcome(lambda: lake.rename("x", "d/x", into=seen)) is PreconditionFailed
    assert lake.rename("x", "e/x", into=lake.stat("e")).path == "e/x"
