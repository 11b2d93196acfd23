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
    """The target of an import statement.

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
    def _nodes(self) -> Sequence[tuple[ast.AST, bool]]:
        """All nodes of the tree, and whether each runs when the module is loaded."""
        found: list[tuple[ast.AST, bool]] = [(self.tree, True)]
        for node, always in found:
            for child in ast.iter_child_nodes(node):
                found.append((child, always and not _runs_later(child)))
        return found

    @cached_property
    def imports(self) -> Sequence[Import]:
        """All imports, of the standard library and other packages too."""
        return [each for node, always in self._nodes for each in _imports(node, always=always)]

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
            for node, _ in self._nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """The classes, by name."""
        return {node.name: node for node, _ in self._nodes if isinstance(node, ast.ClassDef)}

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
        """The names of classes, functions, parameters, constants and attributes, with their lines."""
        return [each for node, _ in self._nodes for each in _identifiers(node)]

    @cached_property
    def strings(self) -> frozenset[str]:
        """The string constants, without f-strings."""
        return frozenset(
            node.value
            for node, _ in self._nodes
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


def _runs_later(node: ast.AST) -> bool:
    """Return whether a node is a function, or code for type checking only."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _imports(node: ast.AST, *, always: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, always) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module and not node.level, f"relative import in line {node.lineno}"
        below = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
        yield from (Import(each, always) for each in sorted(below))
        if len(below) < len(node.names):
            yield Import(node.module, always)


def _definition(module: str, name: str) -> tuple[str, str]:
    """Follow a name through the packages that export it to the module that defines it."""
    while f"{module}.{name}" not in MODULES and name in MODULES[module].origins:
        origin = MODULES[module].origins[name]
        if origin[0] not in MODULES:
            break
        module, name = origin
    return module, name


def _used(tree: ast.Module) -> Iterator[str]:
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        for field in node._fields:
            if field not in ("annotation", "returns", "bases"):
                value = getattr(node, field)
                children = value if isinstance(value, list) else [value]
                nodes += [child for child in children if isinstance(child, ast.AST)]


def _identifiers(node: ast.AST) -> Iterator[tuple[str, int]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.lineno
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr, node.lineno


def words(identifier: str) -> list[str]:
    """Return the words of an identifier in lower case.

    >>> words("HTTPServer_of_path")
    ['http', 'server', 'of', 'path']
    """
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)
    return [part.lower() for part in parts]


@cache
def importers() -> Mapping[str, frozenset[str]]:
    """Return the modules that import each module, or a name of it that a package exports."""
    found: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, module in MODULES.items():
        exported = {
            _definition(*origin)[0] for origin in module.origins.values() if origin[0] in MODULES
        }
        for target in {*module.own_imports, *exported} & MODULES.keys():
            found[target].add(name)
    return {name: frozenset(modules - {name}) for name, modules in found.items()}


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
