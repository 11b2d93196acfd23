"""The shape of modules: few, of a fair size, joined by composition, and found in two steps."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
from attrs import frozen

from support.project import ROOT
from support.source import MODULES, Module, importers

#: A module with fewer lines needs two importers, or a reason.
SMALL = 120


def _is_lazy(module: Module) -> bool:
    """Return whether a string names the module, so that it is imported on first use.

    Such a string is the end of the module's full name with a name in it (``objects.read:get``), an
    import statement for another process, or the last part of the name in the table of a package.
    """
    parts = module.name.split(".")
    tails = "|".join(re.escape(".".join(parts[start:])) for start in range(len(parts)))
    target = re.compile(rf"({tails}):\w+|from {re.escape(module.name)} import .*")
    table = MODULES[module.name.rpartition(".")[0] or "commitlog"]
    neighbours = (other for other in MODULES.values() if other.package == module.package)
    return (table.is_package and parts[-1] in table.strings) or any(
        target.fullmatch(text) for other in neighbours for text in other.strings
    )


def test_small_modules_are_shared() -> None:
    """A short module has two importers, is imported by name, or says why it is separate.

    The reason is in its docstring, with the words "module of its own".
    """
    alone = {
        name
        for name, module in MODULES.items()
        if module.lines < SMALL
        and not _is_program(module)
        and len(importers()[name]) < 2
        and not _is_lazy(module)
        and not re.search(r"\bmodule\s+of\s+its\s+own\b", module.docstring)
    }
    assert not alone


def test_every_directory_is_a_package() -> None:
    """No directory lacks its ``__init__``: setuptools would leave it out of the wheel."""
    assert not {name for name in MODULES if name.rpartition(".")[0] not in {"", *MODULES}}


def test_every_module_is_used() -> None:
    """Each module is imported, is a program, or is imported by name."""
    unused = {
        name
        for name, module in MODULES.items()
        if not _is_program(module) and not importers()[name] and not _is_lazy(module)
    }
    assert not unused


def _is_program(module: Module) -> bool:
    """Return whether Python runs the module: a package, or a program."""
    return module.file.stem in ("__init__", "__main__") or "__main__" in module.strings


def _is_abstract(node: ast.ClassDef) -> bool:
    text = "\n".join(map(ast.unparse, (*node.bases, *node.keywords, *node.body)))
    return "abstractmethod" in text or "Protocol" in text


def _is_error(node: ast.ClassDef) -> bool:
    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
    return any(base.endswith(("Error", "Exception")) or base in _ERRORS for base in bases)


_ERRORS = frozenset(MODULES["commitlog.errors"].classes)


def test_no_class_is_split_by_inheritance() -> None:
    """A base in another module is a port, an error, complete by itself, or shared by two classes.

    A base that only one class derives from, and nothing else uses, is a part of that class, moved to
    another file.
    """
    used = frozenset[str]().union(*(module.used_names for module in MODULES.values()))
    derived = Counter((base.module, base.name) for module in MODULES.values() for base in module.bases)
    parts = {
        f"{module}.{name}"
        for (module, name), count in derived.items()
        if count == 1
        and name not in used
        and not _is_abstract(MODULES[module].classes[name])
        and not _is_error(MODULES[module].classes[name])
    }
    assert not parts


def test_inheritance_is_shallow() -> None:
    """No class has three classes of the library above it, apart from errors."""
    above = {
        (module.name, base.owner): (base.module, base.name)
        for module in MODULES.values()
        for base in module.bases
        if base.module != "commitlog.errors"
    }

    def depth(owner: tuple[str, str]) -> int:
        return 0 if owner not in above else 1 + depth(above[owner])

    assert not [f"{module}.{name}" for module, name in above if depth((module, name)) > 2]


@pytest.mark.parametrize("top", ["commitlog", "tests", "benchmarks"])
def test_no_attribute_repeats_its_owner(top: str) -> None:
    """No expression repeats an attribute, as of a store of a store: two levels have two names."""
    repeated = re.compile(r"^(?! *(?:from|import) ).*\.([a-z]\w*)\.\1\b(?!\()", re.M)
    found = [
        f"{file.relative_to(ROOT)}: {match.group().strip()}"
        for file in sorted((ROOT / top).rglob("*.py"))
        for match in repeated.finditer(file.read_text())
    ]
    assert not found


@frozen
class Question:
    """A question of a reader, and the way to its answer.

    Attributes:
        text: the question.
        package: where the reader starts.
        answer: the module and the definition that answer it.
    """

    text: str
    package: str
    answer: str

    def __str__(self) -> str:
        return self.text


QUESTIONS = [
    Question("Where is a rename planned?", "namespace", "namespace.write.plan_rename"),
    Question("Where is a lease reclaimed?", "commit", "commit.lease:Lease"),
    Question("Where does a Spark task write?", "spark", "tabular.task_files:TaskFiles.write"),
    Question("Where is a commit point written?", "outputs", "outputs.log:CommitLog.commit"),
    Question("Where is a lost upload collected?", "outputs", "outputs.recovery:collect"),
]


def _steps(module: Module) -> set[str]:
    """Return the modules to which a reader of a module can go: those that it imports or names."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    words = re.findall(r"\w+(?:\.\w+)*", module.docstring)
    named = {*words, *(f"{package}.{word}" for word in words)}
    return {*module.own_imports, *(named & MODULES.keys())}


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_two_steps_lead_to_an_answer(question: Question) -> None:
    """A package leads to a module, directly or through one other, that defines the answer."""
    place, _, name = question.answer.partition(":")
    target = MODULES[f"commitlog.{place}"]
    first = _steps(MODULES[f"commitlog.{question.package}"])
    second = {name for step in first for name in _steps(MODULES[step])}
    assert target.name in first | second
    body: list[ast.stmt] = target.tree.body
    for part in filter(None, name.split(".")):
        found = [
            node
            for node in body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == part
        ]
        assert found, f"{target} does not define {name}"
        body = found[0].body


@pytest.mark.parametrize(
    "package", [module for module in MODULES.values() if module.is_package], ids=str
)
def test_a_package_names_its_modules(package: Module) -> None:
    """The docstring or the exports of a package lead to each of its modules.

    The commands are exempt: `commitlog.cli.app` has their list. So is the root, whose packages are in
    docs/architecture.md.
    """
    if package.name == "commitlog" or package.package == "cli":
        return
    loaded_later = {
        f"{package.name}.{word}" for string in package.strings for word in re.findall(r"\w+", string)
    }
    own = {name for name in MODULES if name.rpartition(".")[0] == package.name}
    assert own - _steps(package) - loaded_later <= {f"{package.name}.__main__"}


def _table(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the first table below a heading of docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text().split(f"\n## {heading}\n")[1]
    rows = [
        line.strip("|").split("|") for line in text.split("\n## ")[0].splitlines() if line[:1] == "|"
    ]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_documented_places_are_found_in_two_steps() -> None:
    """Each module in the table of docs/architecture.md is two steps or fewer from its package."""
    for subject, places in _table("Where is it?"):
        for place in re.findall(r"`([\w/]+?)(?:/|\.py)`", places):
            target = f"commitlog.{place.replace('/', '.')}"
            first = _steps(MODULES[f"commitlog.{MODULES[target].package}"])
            second = {name for step in first for name in _steps(MODULES[step])}
            assert target in first | second, f"{subject}: {place}"


def test_the_packages_of_a_namespace_import_upwards() -> None:
    """Each package of a namespace imports only packages above it in docs/architecture.md."""
    order = [re.sub(r"[`/]", "", row[0]) for row in _table("The packages of a namespace")]
    below = {
        f"{module} imports {name}"
        for module in MODULES.values()
        for name in module.own_imports
        for here, there in [(_namespace_package(module.name), _namespace_package(name))]
        if here in order and there in order and order.index(there) > order.index(here)
    }
    assert order
    assert not below


def _namespace_package(name: str) -> str:
    return name.removeprefix("commitlog.namespace.").partition(".")[0]
