"""How to resume a copy that ended early: the advice, and the option that it needs.

Without the option, a directory that is copied again goes *into* the one that the first run made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import click

from commitlog.cli.fs.sources import TreeSource
from commitlog.cli.progress import Progress

__all__ = ["advise_resume", "exact_option"]

R = TypeVar("R")


def exact_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the flag `exact`, which makes the target itself the copy, to `command`."""
    return click.option(
        "-T",
        "--no-target-directory",
        "exact",
        is_flag=True,
        help="Copy to the target itself, not into it if it is a directory.",
    )(command)


def advise_resume(
    progress: Progress, done: str, sources: Sequence[TreeSource], *, force: bool, into: bool
) -> None:
    """Let `progress` report the copied files of `sources`, and the command for the others.

    Args:
        progress: the progress of the command.
        done: the action and its target: "uploaded to commitlog://lake/a".
        sources: the sources that are copied.
        force: whether existing files are replaced.
        into: whether the same command has the same target when it is run again.
    """
    progress.done = f"were {done}"
    progress.files = lambda: chain.from_iterable(source.files() for source in sources)
    directory = any(source.is_directory for source in sources)
    if directory:
        progress.exceptions = "new directories"
    if directory or len(sources) > 1:
        progress.after_failures = True
        options = ["--force"] * (not force) + ["-T"] * (not into)
        progress.resume = " ".join(["run the same command", *["with"] * bool(options), *options])
        if not force:
            progress.resume += " (which replaces existing files)"
