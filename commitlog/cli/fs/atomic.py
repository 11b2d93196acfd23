"""Atomic upload of a directory.

The directory is published as a job, so readers see all of it or nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice

from attrs import field, frozen

from commitlog.cli.exit_status import Interrupted, Trials
from commitlog.cli.fs.paths import Spot
from commitlog.cli.fs.status import status_record
from commitlog.cli.fs.trees import Piece, Tree
from commitlog.cli.output import note, print_json, printable
from commitlog.cli.streams import PIECE
from commitlog.cli.transfer import Advance, Job, work
from commitlog.errors import AlreadyExists, OutcomeUnknown
from commitlog.namespace import Data, DirectoryCommitter
from commitlog.paths import join
from commitlog.stores.body import COPY_LIMIT

__all__ = ["Filler", "send_whole"]

#: The number of large files that are sent concurrently.
_LARGE = 4


@frozen
class Filler:
    """A writer of the content of new files. Thread-safe.

    It limits how many large files are written concurrently, because the store holds several parts of
    each large file in memory while it sends them.
    """

    _large: threading.Semaphore = field(factory=lambda: threading.Semaphore(_LARGE))

    def store(
        self,
        at: Spot,
        piece: Piece,
        chunks: Callable[[], Iterator[bytes]],
        advance: Advance,
        *,
        overwrite: bool = False,
        parents: bool = True,
        look: bool = True,
    ) -> Data:
        """Store the content of `piece`. If possible, let the store copy it.

        Args:
            at: the path of the new file.
            piece: the source file.
            chunks: opens the source file and yields its content.
            advance: called with the number of bytes after each step.
            overwrite, parents: as in `Namespace.write`.
            look: whether to check first that the file can be created. For a copy in the store and for
                a large file this is always checked.
        """
        begin = partial(at.namespace.open_writer, at.path, overwrite=overwrite, parents=parents)
        here = piece.spot
        if here is not None and here.namespace is at.namespace:
            opened = here.namespace.open(here.path)
            if opened.data.size <= COPY_LIMIT:
                with begin() as writer:
                    advance(writer.copy(opened))
                    return writer.finish()
        left = chunks()
        head = [] if look else list(islice(left, 2))
        if not look and len(head) < 2:
            body = b"".join(head)
            advance(len(body))  # first: if this call cancels the job, nothing has been stored
            return at.namespace.upload(body)
        with begin() as writer, ExitStack() as slot:
            written = 0
            for chunk in chain(head, left):
                if written <= PIECE < written + len(chunk):
                    slot.enter_context(self._large)
                written += writer.write(chunk)
                advance(len(chunk))
            return writer.finish()


def send_whole(
    tree: Tree,
    goal: Spot,
    trials: Trials,
    filler: Filler,
    *,
    label: str,
    threads: int,
    replace: bool,
    json: bool,
) -> None:
    """Send a directory to `goal`, where all of it appears at once if no file fails.

    Raises the errors of `DirectoryCommitter`, and `Interrupted`. After an error the files that were sent
    are removed, except after `OutcomeUnknown`.
    """
    if not replace and goal.status() is not None:
        raise AlreadyExists(f"there is something at {goal.url}; --replace puts this in its place")
    nothing = f"nothing of {tree.shown} is at {goal.url}"
    failed = trials.failures
    files: dict[str, Data] = {}
    directories: list[str] = []
    with ThreadPoolExecutor(threads) as executor:
        publication = DirectoryCommitter(goal.namespace, goal.path, mapper=executor.map)
        attempt = publication.begin(mode="overwrite" if replace else "error")
        at = Spot(namespace=goal.namespace, path=attempt.staging)
        try:
            work(
                _stored(tree, at, filler, files, directories, trials),
                trials,
                label=label,
                length=tree.effort,
                threads=threads,
                all_or_none=True,
            )
            if trials.failures == failed:
                for path in _empty(directories, files):
                    at.namespace.make_directory(join(at.path, path))
                status = publication.publish(attempt, files)
                if json:
                    print_json(status_record(goal.namespace, status))
                return
        except OutcomeUnknown:
            raise
        except KeyboardInterrupt as error:
            note(f"taking back what was sent of {printable(tree.shown)} …")
            if publication.abort(attempt, files):
                raise Interrupted(nothing) from error
            unknown = f"all of {tree.shown} may or may not be at {goal.url}"
            raise Interrupted(unknown) from error
        except BaseException:
            publication.abort(attempt, files)
            raise
        publication.abort(attempt, files)
    note(printable(nothing))


def _stored(
    tree: Tree,
    at: Spot,
    filler: Filler,
    files: dict[str, Data],
    directories: list[str],
    trials: Trials,
) -> Iterator[Job]:
    with trials.of(tree.shown):
        for piece in tree.pieces():
            if piece.chunks is None:
                directories.append(piece.path)
            else:
                do = partial(_store, at, filler, piece, piece.chunks, files)
                yield Job(what=piece.shown, do=do)


def _empty(directories: list[str], files: Iterable[str]) -> list[str]:
    """Return the directories that are not created together with a file or directory in them."""
    left = set(directories) - {""}
    for path in (*directories, *files):
        left.discard(path.rpartition("/")[0])
    return sorted(left)


def _store(
    at: Spot,
    filler: Filler,
    piece: Piece,
    chunks: Callable[[], Iterator[bytes]],
    files: dict[str, Data],
    advance: Advance,
) -> None:
    files[piece.path] = filler.store(at.below(piece.path), piece, chunks, advance, look=False)
