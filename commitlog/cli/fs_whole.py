"""Sending a directory so that it shows whole, or not at all: it is published as a job is.

Imports what is copied from, and the publishing of jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice

from attrs import field, frozen

from commitlog.cli.exits import Interrupted, Trials
from commitlog.cli.fs_paths import Spot
from commitlog.cli.fs_stat import status_record
from commitlog.cli.fs_trees import Piece, Tree
from commitlog.cli.show import note, print_json, printable
from commitlog.cli.streams import PIECE
from commitlog.cli.work import Advance, Job, work
from commitlog.errors import AlreadyExists, OutcomeUnknown
from commitlog.namespace import Data, Publication
from commitlog.paths import join

__all__ = ["Filler", "send_whole"]

#: Most bytes that stores copy at once ("CopyObject" of S3).
_COPIED = 5 * 1024**3

#: Large files that are sent at a time.
_LARGE = 4


@frozen
class Filler:
    """Gives new files their content; of large ones, to few at a time. Thread-safe.

    What the store is sending of a large file is in memory, several parts of it.
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
        """Store the content of `piece`, or have the store copy it if it can.

        Args:
            at: where the file is to be.
            piece, chunks, advance: what, how it is read, and what is told of that.
            overwrite, parents: as of `Namespace.write`.
            look: whether to look first if it can be. What is to be copied, or is large, always is.
        """
        begin = partial(at.namespace.begin_write, at.path, overwrite=overwrite, parents=parents)
        here = piece.spot
        if here is not None and here.namespace is at.namespace:
            opened = here.namespace.open(here.path)
            if opened.data.size <= _COPIED:
                with begin() as writer:
                    advance(writer.copy(opened))
                    return writer.finish()
        left = chunks()
        head = [] if look else list(islice(left, 2))
        if not look and len(head) < 2:
            body = b"".join(head)
            advance(len(body))  # before: what is broken off then has stored nothing
            return at.namespace.store_content(body)
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
    """Send a directory to `goal`, at which all of it appears at once if none of it fails.

    Raises what `Publication` does, and `Interrupted`; what was sent is taken back, but after
    `OutcomeUnknown`.
    """
    if not replace and goal.status() is not None:
        raise AlreadyExists(f"there is something at {goal.url}; --replace puts this in its place")
    nothing = f"nothing of {tree.shown} is at {goal.url}"
    failed = trials.failures
    files: dict[str, Data] = {}
    directories: list[str] = []
    with ThreadPoolExecutor(threads) as executor:
        publication = Publication(goal.namespace, goal.path, mapper=executor.map)
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
    """Return the directories that do not come by themselves with what is in them."""
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
