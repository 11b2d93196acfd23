"""The library with one rule broken: its modules anew, one of them from changed source.

The code that runs in production has no switches for this. A mutant is a few lines of its source, what
stands in their place, and fresh copies of the module that they are in and of all that depend on it; the
modules that everybody else has imported stay as they are. What does not depend on the change, such as
errors and ports, is shared, so that ``isinstance`` means the same inside and outside.
"""

from __future__ import annotations

import ast
import enum
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from attrs import field, frozen

import commitlog

__all__ = ["Code", "Edit", "OutOfDate", "load"]

#: The rooms that hold the protocols. What is above and below them is never copied.
ROOMS = ("commit", "oplog", "outputs", "ingest", "namespace")


class OutOfDate(AssertionError):
    """The code was changed, and a mutant no longer fits it."""


@frozen(init=False)
class Edit:
    """Changes of one module's source.

    Attributes:
        module: its name below the package, such as ``commit.lease``.
        changes: pairs of a snippet that occurs once in it, and what it becomes. None: a mere copy.
        limits: edits of other modules that make its limits small enough for a small world. They are
            made in the library as it is, too, and the page does not show them.
    """

    module: str
    changes: tuple[tuple[str, str], ...]
    limits: tuple[Edit, ...]

    def __init__(self, module: str, *changes: tuple[str, str], limits: Iterable[Edit] = ()) -> None:
        self.__attrs_init__(f"commitlog.{module}", changes, tuple(limits))

    def apply(self, source: str) -> str:
        """Return the changed source. Raises `OutOfDate`."""
        for before, after in self.changes:
            found = source.count(before)
            if found != 1:
                raise OutOfDate(
                    f"this occurs {found} times in {self.module}, and should once; bring the mutant up "
                    f"to date, and docs/mutants.md after it:\n{before}"
                )
            source = source.replace(before, after)
        try:
            compile(source, self.module, "exec")
        except SyntaxError as error:
            raise OutOfDate(
                f"{self.module} is no Python any more with this mutant ({error}); bring it up to date, "
                f"and docs/mutants.md after it:\n{self.changes}"
            ) from error
        return source

    def none(self) -> Edit:
        """Return the edit of the same module that changes nothing."""
        return Edit(self.module.removeprefix("commitlog."), limits=self.limits)

    @property
    def source(self) -> str:
        """The source of the module as it is."""
        return _files()[self.module].read_text()


@frozen
class Code:
    """The library's classes as one edit has them; those that it does not touch are the real ones."""

    edit: Edit
    _copies: Mapping[str, ModuleType] = field(repr=False)

    def get(self, name: str) -> Any:
        """Return what has this name below the package, such as ``outputs.output.Output``."""
        module, _, attribute = f"commitlog.{name}".rpartition(".")
        return getattr(self._copies.get(module) or importlib.import_module(module), attribute)


@cache
def load(edit: Edit) -> Code:
    """Return the library with `edit`. Raises `OutOfDate`."""
    # All of them, so that none is imported for the first time, and for good, by a copy.
    real = {name: importlib.import_module(name) for name in _files()}
    copies: dict[str, ModuleType] = {}
    with patch.dict(sys.modules):
        edits = {each.module: each for each in (edit, *edit.limits)}
        for name in _dependents(frozenset(edits)):
            path = _files()[name]
            source = path.read_text()
            copy = ModuleType(name)
            sys.modules[name] = copies[name] = copy
            changed = edits[name].apply(source) if name in edits else source
            exec(compile(changed, f"{path} (copy)", "exec", dont_inherit=True), vars(copy))
            # Members of enums are compared by identity, everywhere.
            vars(copy).update(
                {key: it for key, it in vars(real[name]).items() if isinstance(it, enum.EnumType)}
            )
    return Code(edit, copies)


def _dependents(changed: frozenset[str]) -> Iterator[str]:
    """Yield what is `changed` and all modules that depend on it, each after those that it depends on."""
    for name in changed - _files().keys():
        raise OutOfDate(f"there is no module {name}")
    done: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name not in done:
            done.add(name)
            for imported in sorted(_imports(name)):
                yield from visit(imported)
            if _depends(name, changed):
                yield name

    for name in _files():
        yield from visit(name)


def _depends(name: str, changed: frozenset[str]) -> bool:
    return name in changed or any(_depends(imported, changed) for imported in _imports(name))


@cache
def _files() -> Mapping[str, Path]:
    top = Path(commitlog.__file__).parent
    return {
        f"commitlog.{room}.{file.stem}": file
        for room in ROOMS
        for file in sorted((top / room).glob("*.py"))
        if file.stem != "__init__"
    }


@cache
def _imports(name: str) -> frozenset[str]:
    """Return the modules of the rooms that `name` imports."""
    nodes = ast.walk(ast.parse(_files()[name].read_text()))
    found = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return frozenset(module for module in found if module in _files())
