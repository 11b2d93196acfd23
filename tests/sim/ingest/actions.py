"""The actions in a world of ingest: uploads into the bucket, and drivers that run the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import frozen

from commitlog.errors import (
    Conflict,
    InputChanged,
    InputMissing,
    OutcomeUnknown,
    StateMismatch,
    Unavailable,
)
from support.ingest import Stop

if TYPE_CHECKING:
    from sim.ingest.world import IngestWorld

__all__ = ["Upload", "retry_problems", "run_cleaner", "run_query"]

#: Errors that end a run of the query. Its driver then starts it again.
_FAILURES = (Unavailable, Conflict, OutcomeUnknown, Stop, StateMismatch, InputChanged, InputMissing)


@frozen
class Upload:
    """A put into the bucket.

    Attributes:
        path: path of the object.
        at: time of the put in seconds.
        size: size in bytes.
        age: the object's time of writing is this number of seconds earlier.
        again: whether it has the content, and so the etag, of the first upload to this path.
    """

    path: str
    at: float = 0.0
    size: int = 1
    age: float = 0.0
    again: bool = False


def run_query(
    world: IngestWorld, name: str, *, batches: int, every: float, lives: int, finite: bool
) -> Callable[[], None]:
    """Return the program of a driver; see `IngestWorld.start` for the arguments."""
    node = world.nodes[name]

    def program() -> None:
        for life in range(lives):
            if life:
                node.clock.sleep(every)
            engine = world.engine(name)
            existing = dict(world.current)
            if finite:
                engine.source.finish()
            try:
                for number in range(batches):
                    if number:
                        node.clock.sleep(every)
                    more = engine.batch()
                    world.report(node, "batch" if more else "nothing new")
                    if finite and not more:
                        world.missed += world.missing(existing)
                        break
                return
            except _FAILURES as error:
                world.report(node, type(error).__name__)

    return program


def run_cleaner(
    world: IngestWorld, name: str, *, steps: int, every: float, most: int
) -> Callable[[], None]:
    """Return the program of a cleaner; see `IngestWorld.start_cleaner` for the arguments."""
    node = world.nodes[name]

    def program() -> None:
        cleaner = world.cleaner(name)
        for number in range(steps):
            if number:
                node.clock.sleep(every)
            try:
                cleaned = cleaner.clean(most=most)
                world.report(node, "cleaned" if cleaned.files else "nothing cleaned")
            except _FAILURES as error:
                world.report(node, type(error).__name__)

    return program


def retry_problems(world: IngestWorld, name: str) -> Callable[[], None]:
    """Return the program of an operator; see `IngestWorld.start_operator`."""
    node = world.nodes[name]

    def program() -> None:
        try:
            retried = world.admin(name).retry()
            world.report(node, "retried" if retried else "nothing to retry")
        except _FAILURES as error:
            world.report(node, type(error).__name__)

    return program
