"""Upload of files and directories to a namespace, file by file or as one atomic change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from attrs import field, frozen

from commitlog._util.concurrency import Executor
from commitlog.cli.exit_status import FailureCollector, Interrupted
from commitlog.cli.fs.sources import SourceItem, TreeSource
from commitlog.cli.fs.status import status_record
from commitlog.cli.output import note, print_json, printable
from commitlog.cli.progress import FileOperation, Progress, run_jobs
from commitlog.errors import AlreadyExists, CommitError, InvalidPath, OutcomeUnknown
from commitlog.paths import join
from commitlog.transfer import Advance, ContentWriter, NamespacePath, StoredContent, link_files

if TYPE_CHECKING:
    from commitlog.namespace import Data, Status

__all__ = ["FileUpload", "advised", "upload_whole"]

#: Seconds between two checks of a waiting job whether it was cancelled.
_WAIT_SECONDS = 0.1


@frozen(kw_only=True)
class FileUpload:
    """An upload of sources whose files appear one by one, each when it is complete.

    Attributes:
        failures: receives the errors.
        progress: receives the progress.
        label: the label of the progress bar.
        force: whether to replace existing files.
        threads: the number of concurrent files.
        json: whether to print the new files as JSON.
    """

    failures: FailureCollector
    progress: Progress
    label: str
    force: bool
    threads: int
    json: bool
    _writer: ContentWriter = field(factory=ContentWriter, init=False)

    def run(self, planned: Sequence[tuple[TreeSource, NamespacePath]]) -> None:
        """Upload sources to their targets, which are in one namespace. Raises `TooManyFailures`."""

        def show(status: Status | None) -> None:
            if self.json and status is not None:
                print_json(status_record(planned[0][1].namespace, status))

        run_jobs(
            chain.from_iterable(self._jobs(source, target) for source, target in planned),
            self.failures,
            label=self.label,
            effort=lambda: sum(source.effort() for source, _ in planned),
            threads=self.threads,
            join=self._link,
            done=show,
            progress=self.progress,
        )

    def _jobs(self, source: TreeSource, top: NamespacePath) -> Iterator[FileOperation]:
        parents: list[_NewDirectory] = []
        self.progress.check()
        with self.failures.collect(source.name):
            for item in source.items():
                target = top.below(item.path) if item.path else top
                while parents and not parents[-1].contains(item.path):
                    parents.pop()
                parent = parents[-1] if parents else None
                if item.blocks is not None:
                    run: Callable[[Advance], object] = partial(self._store, item, target, parent)
                    yield FileOperation(name=item.name, run=run, part=bool(item.path))
                    continue
                parents.append(directory := _NewDirectory(target, item.path, parent))
                run = partial(self._make_directory, directory)
                if parent is None:
                    with self.progress.step(item.name):
                        run(lambda step: None)  # if this fails, its contents are not tried
                    self.progress.succeed(files=0)
                else:
                    yield FileOperation(name=item.name, run=run, part=True, effort=0, files=0)

    def _make_directory(self, directory: _NewDirectory, advance: Advance) -> None:
        try:
            directory.make(advance)
        except InvalidPath as error:
            raise self._advise(error) from None

    def _store(
        self,
        item: SourceItem,
        target: NamespacePath,
        parent: _NewDirectory | None,
        advance: Advance,
    ) -> StoredContent:
        is_new = parent is not None and parent.wait(advance)
        check = not (self.force or is_new)
        try:
            data = _write(
                self._writer, item, target, advance, overwrite=self.force, parents=False, check=check
            )
        except (AlreadyExists, InvalidPath) as error:
            raise self._advise(error) from None
        return StoredContent(target, data)

    def _link(
        self, stored: Sequence[StoredContent | None], executor: Executor
    ) -> list[Status | CommitError | None]:
        made = link_files(stored, executor, overwrite=self.force, parents=False)
        return [self._advise(each) if isinstance(each, CommitError) else each for each in made]

    def _advise(self, error: CommitError) -> CommitError:
        return advised(error, force=self.force)


def advised(error: CommitError, *, force: bool) -> CommitError:
    """Return the error of a file that was not made, with advice for the user."""
    match error:
        case AlreadyExists() if not force:
            return AlreadyExists(f"{error}; --force replaces it")
        case InvalidPath():
            return InvalidPath(f"{error}; rename it")
    return error


def _write(
    writer: ContentWriter,
    item: SourceItem,
    target: NamespacePath,
    advance: Advance,
    *,
    overwrite: bool = True,
    parents: bool = True,
    check: bool = False,
) -> Data:
    """Store the content of a file. Within a namespace, the store copies it."""
    if item.origin is not None:
        source = item.origin.namespace.open(item.origin.path)
        origin = item.origin.namespace
        return writer.copy(
            target, source, origin, advance, overwrite=overwrite, parents=parents, check=check
        )
    assert item.blocks is not None
    with closing(item.blocks()) as blocks:
        return writer.write(target, blocks, advance, overwrite=overwrite, parents=parents, check=check)


class _NewDirectory:
    """A directory of a tree that is uploaded. Thread-safe.

    One job makes it. That job starts before the jobs for the files and directories in it, so these can
    wait for it in any thread.

    Args:
        target: the path of the new directory.
        path: its path in the tree; "" for the top.
        parent: its parent directory in the tree; None for the top.
    """

    def __init__(self, target: NamespacePath, path: str, parent: _NewDirectory | None) -> None:
        self._target = target
        self._path = path
        self._parent = parent
        self._ended = threading.Event()
        self._is_new = False

    def contains(self, path: str) -> bool:
        """Return whether the directory contains a path of the tree, at any depth."""
        return not self._path or path.startswith(f"{self._path}/")

    def make(self, advance: Advance) -> None:
        """Make the directory, unless it exists, after its parent directory.

        If the parent could not be made, the directory is tried nevertheless, because the error then
        names the reason. Raises the errors of `make_directory`.
        """
        try:
            if self._parent is not None:
                self._parent.wait(advance)
            make = self._target.namespace.make_directory
            try:
                make(self._target.path, exist_ok=False, parents=False)
                self._is_new = True
            except AlreadyExists:
                make(self._target.path, parents=False)
        finally:
            self._ended.set()

    def wait(self, advance: Advance) -> bool:
        """Wait for `make` to end. Return whether it made the directory, which was then empty.

        Raises the errors of `advance`, which cancel the wait: after a cancellation `make` may never run.
        """
        while not self._ended.wait(_WAIT_SECONDS):
            advance(0)
        return self._is_new


def upload_whole(
    source: TreeSource,
    target: NamespacePath,
    failures: FailureCollector,
    *,
    label: str,
    threads: int,
    replace: bool,
    json: bool,
) -> None:
    """Upload a directory, all of which appears at once if no file fails.

    It is published as a job, so readers see all of it or nothing. Raises the errors of
    `DirectoryCommitter`, and `Interrupted`. After an error the uploaded files are removed, except after
    `OutcomeUnknown`.
    """
    from commitlog.namespace import DirectoryCommitter

    if not replace and target.status() is not None:
        raise AlreadyExists(f"{target.url} already exists; --replace replaces it")
    nothing = f"nothing of {source.name} is at {target.url}"
    failed_before = failures.count
    files: dict[str, Data] = {}
    directories: list[str] = []
    with ThreadPoolExecutor(threads) as executor:
        committer = DirectoryCommitter(target.namespace, target.path, executor=executor)
        attempt = committer.begin(mode="overwrite" if replace else "error")
        staging = NamespacePath(namespace=target.namespace, path=attempt.staging)
        try:
            run_jobs(
                _staging_jobs(source, staging, files, directories, failures),
                failures,
                label=label,
                effort=source.effort,
                threads=threads,
                all_or_none=True,
            )
            if failures.count == failed_before:
                for path in _empty(directories, files):
                    staging.namespace.make_directory(join(staging.path, path))
                status = committer.publish(attempt, files)
                if json:
                    print_json(status_record(target.namespace, status))
                return
        except OutcomeUnknown:
            raise
        except KeyboardInterrupt as error:
            note(f"removing the uploaded files of {printable(source.name)} …")
            if committer.abort(attempt, files):
                raise Interrupted(nothing) from error
            unknown = f"all of {source.name} may or may not be at {target.url}"
            raise Interrupted(unknown) from error
        except BaseException:
            committer.abort(attempt, files)
            raise
        committer.abort(attempt, files)
    note(printable(nothing))


def _staging_jobs(
    source: TreeSource,
    staging: NamespacePath,
    files: dict[str, Data],
    directories: list[str],
    failures: FailureCollector,
) -> Iterator[FileOperation]:
    """Yield jobs that store the content of files in `files`. Add the directories to `directories`."""
    writer = ContentWriter()

    def store(item: SourceItem, advance: Advance) -> None:
        files[item.path] = _write(writer, item, staging.below(item.path), advance, overwrite=False)

    with failures.collect(source.name):
        for item in source.items():
            if item.blocks is None:
                directories.append(item.path)
            else:
                yield FileOperation(name=item.name, run=partial(store, item))


def _empty(directories: list[str], files: Iterable[str]) -> list[str]:
    """Return the directories that are not created together with a file or directory in them."""
    left = set(directories) - {""}
    for path in (*directories, *files):
        left.discard(path.rpartition("/")[0])
    return sorted(left)
