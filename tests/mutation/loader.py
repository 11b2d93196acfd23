"""The library with one rule broken: fresh copies of some modules, one of them from changed source.

The production code has no switches for this. A mutant is a few lines of its source, the lines that
replace them, and fresh copies of the module that has them and of all modules that depend on it. The
modules that other code has imported do not change. Modules that do not depend on the change,
such as errors and ports, are shared, so that ``isinstance`` means the same inside and outside.
"""

from __future__ import annotations

import builtins
import enum
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from types import ModuleType
from typing import Any, TypeVar, cast
from unittest.mock import patch

from attrs import field, frozen

from mutation.edits import Edit
from mutation.library import COMMITLOG, Library

__all__ = ["Code", "load"]

_T = TypeVar("_T")


@frozen
class Code:
    """The classes of the library after an edit; those that do not depend on it are the originals."""

    _copies: Mapping[str, ModuleType] = field(repr=False)

    def get(self, original: type[_T]) -> type[_T]:
        """Return the class that replaces a class of the library."""
        copy = self._copies.get(original.__module__)
        return original if copy is None else cast(type[_T], getattr(copy, original.__name__))


def load(edit: Edit, library: Library = COMMITLOG) -> Code:
    """Return the library with an edit. Raises `OutOfDate`."""
    return _load(library, frozenset(edit.sources(library).items()))


@cache
def _load(library: Library, changed: frozenset[tuple[str, str]]) -> Code:
    # Import all modules first, so that a copy never causes the first import of one.
    originals = {name: importlib.import_module(name) for name in library.files}
    sources = dict(changed)
    copies: dict[str, ModuleType] = {}
    with patch.dict(sys.modules), ExitStack() as attributes:
        for name in library.dependents(frozenset(sources)):
            copy = _empty(library, name)
            vars(copy)["__builtins__"] = {**vars(builtins), "__import__": _importer(copies)}
            sys.modules[name] = copies[name] = copy
            source = sources.get(name) or library.source(name)
            exec(compile(source, f"{library.files[name]} (copy)", "exec", dont_inherit=True), vars(copy))
            # Members of enums are compared by identity everywhere.
            vars(copy).update(
                {key: it for key, it in vars(originals[name]).items() if isinstance(it, enum.EnumType)}
            )
            # ``from package import module`` takes the attribute of the package.
            package, _, child = name.rpartition(".")
            if isinstance(getattr(sys.modules[package], child, None), ModuleType):
                attributes.enter_context(patch.object(sys.modules[package], child, copy))
    return Code(copies)


def _importer(copies: Mapping[str, ModuleType]) -> Callable[..., Any]:
    """Return ``__import__`` for copies, so that functions that import something get copies, too."""

    def load_module(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        package = (globals or {}).get("__package__")
        full = importlib.util.resolve_name("." * level + name, package)
        if fromlist and full in copies:
            return copies[full]
        return builtins.__import__(name, globals, locals, fromlist, level)

    return load_module


def _empty(library: Library, name: str) -> ModuleType:
    """Return a module without content."""
    module = ModuleType(name)
    is_package = library.files[name].stem == "__init__"
    module.__package__ = name if is_package else name.rpartition(".")[0]
    if is_package:
        module.__path__ = [str(library.files[name].parent)]
        prefix = f"{name}."
        for each in library.files:
            if each.startswith(prefix) and "." not in each.removeprefix(prefix):
                setattr(module, each.removeprefix(prefix), sys.modules[each])
    return module
