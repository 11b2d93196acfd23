"""The source of the library: its modules, the definitions in them, and what each module imports.

A mutant names a function, never a module. So a function may move to another module, and a module to
another package, without a change of the mutant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path

from attrs import frozen

import commitlog

__all__ = ["COMMITLOG", "Definition", "Library", "OutOfDate"]


class OutOfDate(AssertionError):
    """A mutant no longer fits the code, because the code was changed."""


@frozen
class Definition:
    """A function, class, method or constant.

    Attributes:
        module: the full name of its module.
        name: its qualified name, such as ``GarbageCollector.collect``.
        start, end: the start and the end of its source in the module, in characters.
    """

    module: str
    name: str
    start: int
    end: int


@frozen
class Library:
    """A package whose modules can be copied.

    Attributes:
        package: the name of the package.
        top: its directory.
        subpackages: the packages that hold the protocols. Modules outside them are never copied.
    """

    package: str
    top: Path
    subpackages: tuple[str, ...]

    @property
    def files(self) -> Mapping[str, Path]:
        """The file of each module in the subpackages, by its full name; packages are modules, too."""
        return _files(self)

    def source(self, module: str) -> str:
        """Return the source of a module."""
        return _source(self.files[module])

    def find(self, anchor: str) -> tuple[Definition, ...]:
        """Return the definition that an anchor names; several if its module defines the name repeatedly.

        Args:
            anchor: a qualified name such as ``GarbageCollector.collect``. A package or module in front
                of it, as in ``iceberg:REMEMBERED``, limits the search where several modules define
                the name.

        Raises:
            OutOfDate: no module defines the name, or several do.
        """
        place, _, name = anchor.rpartition(":")
        inside = f"{self.package}.{place}" if place else self.package
        found = tuple(
            each
            for each in _definitions(self).get(name, ())
            if each.module == inside or each.module.startswith(f"{inside}.")
        )
        modules = sorted({each.module.removeprefix(f"{self.package}.") for each in found})
        if not modules:
            raise OutOfDate(
                f"nothing in the library is named {anchor}; update the mutant's anchor"
                f" (packages searched: {', '.join(self.subpackages)})"
            )
        if len(modules) > 1:
            raise OutOfDate(
                f"{len(modules)} modules define {anchor}: {', '.join(modules)};"
                f" put a package before the name, such as {modules[0]}:{name}"
            )
        return found

    def dependents(self, changed: frozenset[str]) -> list[str]:
        """Return the changed modules and all that import them, each after its own imports."""
        order: dict[str, None] = {}
        visited: set[str] = set()

        def visit(module: str) -> None:
            if module not in visited:
                visited.add(module)
                for imported in sorted(_imports(self, module)):
                    visit(imported)
                order[module] = None

        for module in self.files:
            visit(module)
        stale = set(changed)
        while more := {each for each in order if each not in stale and _imports(self, each) & stale}:
            stale |= more
        return [module for module in order if module in stale]


#: The library under test, with the packages that hold its protocols.
COMMITLOG = Library(
    "commitlog",
    Path(commitlog.__file__).parent,
    ("commit", "oplog", "locks", "outputs", "ingest", "namespace", "lance", "iceberg"),
)


@cache
def _files(library: Library) -> Mapping[str, Path]:
    found = {}
    for name in library.subpackages:
        for file in sorted((library.top / name).rglob("*.py")):
            parts = file.relative_to(library.top).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join((library.package, *parts))] = file
    return found


@cache
def _source(file: Path) -> str:
    return file.read_text()


@cache
def _definitions(library: Library) -> Mapping[str, tuple[Definition, ...]]:
    """Return the definitions in all modules, by their qualified names."""
    found: dict[str, tuple[Definition, ...]] = {}
    for module in library.files:
        source = library.source(module)
        # Offsets of nodes count bytes of a line, in UTF-8.
        lines = source.encode().splitlines(keepends=True)
        starts = list(accumulate(map(len, lines), initial=0))
        for name, first, last in _named(ast.parse(source), ""):
            begin = starts[first.lineno - 1] + first.col_offset
            end = starts[(last.end_lineno or 0) - 1] + (last.end_col_offset or 0)
            span = (len(source.encode()[:offset].decode()) for offset in (begin, end))
            found[name] = (*found.get(name, ()), Definition(module, name, *span))
    return found


def _named(
    node: ast.AST, prefix: str, *, local: bool = False
) -> Iterator[tuple[str, ast.expr | ast.stmt, ast.stmt]]:
    """Yield the name, the first node and the last node of each definition below a node.

    Variables of functions, where `local` is true, are no definitions.
    """
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield prefix + child.name, min([child, *child.decorator_list], key=_line), child
                function = not isinstance(child, ast.ClassDef)
                yield from _named(child, f"{prefix}{child.name}.", local=function)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if not local:
                    yield prefix + name, child, child
            case ast.stmt():
                yield from _named(child, prefix, local=local)


def _line(node: ast.expr | ast.stmt) -> int:
    return node.lineno


@cache
def _imports(library: Library, module: str) -> frozenset[str]:
    """Return the modules of the subpackages that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(library.source(module))):
        match node:
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(names=names):
                base = _absolute(library, module, node)
                below = {f"{base}.{alias.name}" for alias in names}
                found |= below & library.files.keys()
                if below - library.files.keys():
                    found.add(base)
    return frozenset(found & library.files.keys() - {module})


def _absolute(library: Library, module: str, node: ast.ImportFrom) -> str:
    """Return the full name of the module that a statement imports from."""
    if not node.level:
        return node.module or ""
    up = node.level - (library.files[module].stem == "__init__")
    base = module.rsplit(".", up)[0] if up else module
    return f"{base}.{node.module}" if node.module else base
