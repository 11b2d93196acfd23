"""The source of the library as data: modules, imports, and definitions."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from attrs import define, frozen

import commitlog

__all__ = ["MODULES", "Base", "Import", "Module", "circles", "importers", "words"]

_PACKAGE = Path(commitlog.__file__).parent


@frozen
class Import:
    """An import statement's target.

    Attributes:
        target: full name of a module. For a name in a module, the module.
        always: whether the import runs when the module is loaded. Imports in functions, and for type
            checking only, do not.
    """

    target: str
    always: bool


@frozen
class Base:
    """A base class in another module of the library.

    Attributes:
        owner: name of the derived class.
        module: full name of the base's module.
        name: name of the base.
    """

    owner: str
    module: str
    name: str


@define(eq=False)
class Module:
    """A module of the library.

    Attributes:
        name: full name, such as ``commitlog.stores.api``; that of a package for its ``__init__``.
        file: the source file.
    """

    name: str
    file: Path

    def __str__(self) -> str:
        return self.name

    @cached_property
    def text(self) -> str:
        """The source text."""
        return self.file.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def docstring(self) -> str:
        """The docstring, or the empty string."""
        return ast.get_docstring(self.tree) or ""

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        """Whether it is a package's ``__init__``."""
        return self.file.name == "__init__.py"

    @property
    def package(self) -> str:
        """The first component of the name below ``commitlog``, or the empty string."""
        return self.name.partition(".")[2].partition(".")[0]

    @cached_property
    def imports(self) -> Sequence[Import]:
        """All imports, of the standard library and other packages too."""
        return tuple(_imports(self.tree, always=True))

    @cached_property
    def own_imports(self) -> Mapping[str, bool]:
        """The modules of the library that this module imports, and whether at load."""
        found: dict[str, bool] = {}
        for each in self.imports:
            if each.target in MODULES and each.target != self.name:
                found[each.target] = found.get(each.target, False) or each.always
        return found

    @cached_property
    def foreign_imports(self) -> frozenset[str]:
        """The top-level packages outside the library that this module imports."""
        return frozenset(each.target.partition(".")[0] for each in self.imports) - {"commitlog"}

    @cached_property
    def exports(self) -> Sequence[str]:
        """The names in ``__all__`` that are written out."""
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                    return [str(each.value) for each in names if isinstance(each, ast.Constant)]
        return []

    @cached_property
    def origins(self) -> Mapping[str, tuple[str, str]]:
        """The module and name of each name that is imported from a module."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """The classes, by name."""
        return {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)}

    @property
    def bases(self) -> Iterator[Base]:
        """The base classes that other modules of the library define."""
        for name, node in self.classes.items():
            for base in node.bases:
                expression = base.value if isinstance(base, ast.Subscript) else base
                if isinstance(expression, ast.Name) and expression.id in self.origins:
                    module, original = self.origins[expression.id]
                    if module in MODULES:
                        yield Base(name, *_definition(module, original))

    @cached_property
    def used_names(self) -> frozenset[str]:
        """Names that the code refers to, except as a base class, in an annotation or in an import."""
        return frozenset(_used(self.tree))

    @cached_property
    def identifiers(self) -> Sequence[tuple[str, int]]:
        """The names of classes, functions, parameters and fields, with their lines."""
        return tuple(_identifiers(self.tree))

    @cached_property
    def strings(self) -> frozenset[str]:
        """The string constants, without f-strings."""
        return frozenset(
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )


def _load() -> Mapping[str, Module]:
    found = {}
    for file in sorted(_PACKAGE.rglob("*.py")):
        parts = ("commitlog", *file.relative_to(_PACKAGE).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        found[name] = Module(name, file)
    return found


#: All modules of the library, by name.
MODULES: Mapping[str, Module] = _load()


def _imports(node: ast.AST, *, always: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(alias.name, always) for alias in names)
            case ast.ImportFrom(module=module, level=level, names=names):
                assert module and not level, f"relative import in line {child.lineno}"
                below = {f"{module}.{alias.name}" for alias in names} & MODULES.keys()
                yield from (Import(each, always) for each in sorted(below))
                if len(below) < len(names):
                    yield Import(module, always)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(child, always=False)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports(child, always=False)
            case _:
                yield from _imports(child, always=always)


def _definition(module: str, name: str) -> tuple[str, str]:
    """Follow a name through the packages that export it to the module that defines it."""
    while name not in MODULES[module].classes and name in MODULES[module].origins:
        module, name = MODULES[module].origins[name]
    return module, name


def _used(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Attribute(attr=name):
            yield name
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _used(child)


def _identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node.lineno


def words(identifier: str) -> list[str]:
    """Return the words of an identifier in lower case.

    >>> words("HTTPServer_of_path")
    ['http', 'server', 'of', 'path']
    """
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)
    return [part.lower() for part in parts]


@cache
def importers() -> Mapping[str, frozenset[str]]:
    """Return the modules that import each module, in any way."""
    found: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, module in MODULES.items():
        for target in module.own_imports:
            found[target].add(name)
    return {name: frozenset(modules) for name, modules in found.items()}


def circles(edges: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the groups of nodes of which each reaches all others of its group.

    >>> circles({"a": ["b"], "b": ["a", "c"], "c": []})
    [['a', 'b']]
    """
    reached = {node: _reached(node, edges) for node in edges}
    groups = {
        tuple(sorted(other for other in reached[node] if node in reached[other]))
        for node in edges
        if node in reached[node]
    }
    return sorted(map(list, groups))


def _reached(start: str, edges: Mapping[str, Collection[str]]) -> set[str]:
    """Return the nodes that a path of at least one edge reaches."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        more = set(edges[waiting.pop()]) - reached
        reached |= more
        waiting += more
    return reached
