"""How to go on with what has ended early, and the option that it takes.

Without it, a directory that is sent again goes *into* the one that was made the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import click

from commitlog.cli.fs_trees import Tree
from commitlog.cli.headway import Headway

__all__ = ["exact_option", "say_how_to_go_on"]

R = TypeVar("R")


def exact_option(command: Callable[..., R]) -> Callable[..., R]:
    """Give `command` the flag that the target is what is made, as its argument `exact`."""
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
    """Have `headway` tell what came of `trees`, and the command that makes the rest.

    Args:
        headway: of the command.
        done: what was done with files, and where to: "uploaded to commitlog://lake/a".
        trees: what is sent or fetched.
        force: whether files are replaced.
        into: whether the same command goes to the same place once there is something.
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
