"""Public names are exported by packages, each is documented, and none is a coinage."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.project import ROOT
from support.source import MODULES, Module, words

#: The packages whose ``__init__`` exports the public names.
PUBLIC = {module.name: module for module in MODULES.values() if module.is_package and module.exports}

#: Words that named things of this library for which a field has a term, and the terms.
COINAGES = {
    "about": "metadata, or the subject",
    "absence": "missing",
    "adopt": "stage, or import",
    "adoption": "import",
    "anew": "again",
    "brought": "the result",
    "cargo": "batch",
    "crew": "pool",
    "doubts": "conflicts",
    "floors": "watermarks",
    "forks": "fork safety",
    "gate": "guard record",
    "given": "options, or arguments",
    "headway": "progress",
    "lake": "namespace",
    "maps": "mapping",
    "news": "changes",
    "piece": "part, or chunk",
    "relog": "rewrite of the log",
    "repeats": "retries",
    "shelf": "target",
    "spot": "path, or position",
    "tally": "counts",
    "told": "reported, or outcome",
    "trials": "failures",
    "trouble": "interruption, or failure",
    "turns": "locking",
    "witness": "primary record",
    "words": "ids, or versions",
}

#: Import statements of examples, in doctests too.
_IMPORT = re.compile(
    r"^(?:>>> |\.\.\. )?\s*(?:from (commitlog[\w.]*) import|import (commitlog[\w.]*))", re.M
)


def _pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("*.md"))


def _foreign(text: str) -> set[str]:
    """Return the modules that an example imports, other than packages with public names."""
    return {one or other for one, other in _IMPORT.findall(text)} - {"commitlog", *PUBLIC}


def test_examples_import_from_packages() -> None:
    """An example for users imports from the library, or from a package of it, never from a module."""
    assert not {page.name: found for page in _pages() if (found := _foreign(page.read_text()))}


def test_doctests_import_from_packages() -> None:
    """The examples in docstrings import as users do."""
    doctests = {
        module.name: "\n".join(re.findall(r"^ *(>>> .*import.*)$", module.text, re.M))
        for module in MODULES.values()
    }
    assert not {name: found for name, text in doctests.items() if (found := _foreign(text))}


def test_a_name_has_one_home() -> None:
    """Two packages do not export the same thing, except the library itself."""
    homes = Counter(
        id(getattr(importlib.import_module(package), name))
        for package, module in PUBLIC.items()
        if package != "commitlog"
        for name in module.exports
    )
    twice = [
        f"{package}.{name}"
        for package, module in PUBLIC.items()
        if package != "commitlog"
        for name in module.exports
        if homes[id(getattr(importlib.import_module(package), name))] > 1
    ]
    assert not twice


def test_a_public_class_has_a_name_of_its_own() -> None:
    """No two modules define a public class of one name: a reader has several of them open."""
    homes: dict[str, list[str]] = {}
    for module in MODULES.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module.name)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


def _undocumented(module: Module) -> list[str]:
    """Return the exported names, and their members, without a docstring."""
    if module.file.name == "__main__.py":
        return []
    loaded = importlib.import_module(module.name)
    public = {name: getattr(loaded, name) for name in getattr(loaded, "__all__", ())}
    names = [name for name, value in public.items() if _is_defined(value) and not value.__doc__]
    return names + [
        f"{name}.{member}"
        for name, value in public.items()
        if inspect.isclass(value)
        for member, found in vars(value).items()
        if not member.startswith("_") and _is_method(found) and not _explained(value, member)
    ]


def test_public_names_are_documented() -> None:
    """A module has a docstring, and so has each class, method and function that it exports."""
    assert not [module.name for module in MODULES.values() if not module.docstring]
    assert not {module.name: found for module in MODULES.values() if (found := _undocumented(module))}


def _is_defined(value: object) -> bool:
    """Return whether a value is a class or function; constants and type aliases have no docstring."""
    return inspect.isclass(value) or inspect.isfunction(value)


def _is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))


def _explained(owner: type, member: str) -> bool:
    # An override need not repeat the port's docstring.
    return any(inspect.getdoc(vars(base).get(member)) for base in owner.__mro__ if member in vars(base))


def _coined(module: Module) -> list[str]:
    """Return the names in a module with a coinage in them."""
    names = [(module.name.rpartition(".")[2], 1), *module.identifiers]
    return [
        f"line {line}: {name}, for which the term may be {COINAGES[word]}"
        for name, line in names
        for word in words(name)
        if word in COINAGES
    ]


def test_names_are_terms() -> None:
    """No module, class, function, parameter, constant or attribute has a coinage in its name."""
    assert not {module.name: found for module in MODULES.values() if (found := _coined(module))}
