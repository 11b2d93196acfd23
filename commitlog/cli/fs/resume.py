"""The advice on how to resume a copy that ended early, and the option that resuming needs.

Without the option, a directory that is sent again goes *into* the one that the first run made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import click

from commitlog.cli.fs.trees import Tree
from commitlog.cli.progress import Headway

__all__ = ["exact_option", "say_how_to_go_on"]

R = TypeVar("R")


def exact_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the flag `exact`, which makes the target itself the copy, to `command`."""
    return click.option(
        "-T",
        "--no-target-directory",
        "exact",
        is_flag=True,
        help="The target is what to make, or to go on with, also if it is a directory.",
    )(command)


def say_how_to_go_on(
    headway: Headway, done: str, trees: Sequence[Tree], *, force: bool, into: bool
) -> None:
    """Let `headway` report what was done with `trees`, and the command that does the rest.

    Args:
        headway: the progress of the command.
        done: the action and its target: "uploaded to commitlog://lake/a".
        trees: the trees that are sent or fetched.
        force: whether existing files are replaced.
        into: whether the same command has the same target when it is run again.
    """
    headway.done = f"were {done}"
    headway.files = lambda: chain.from_iterable(tree.files() for tree in trees)
    directory = any(tree.is_directory for tree in trees)
    if directory:
        headway.beside = "but for directories that were made, "
    if directory or len(trees) > 1:
        headway.partly = True
        options = ["--force"] * (not force) + ["-T"] * (not into)
        headway.go_on = " ".join(["the same command", *["with"] * bool(options), *options])
        if not force:
            headway.go_on += " (it replaces files that are there)"
