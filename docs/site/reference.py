"""The reference of the API: a page for each package with public names, from the docstrings.

A name that two packages export has its entry on the page of the first one in `PACKAGES`; the page of the
other links to it. So each public name has exactly one entry in the inventory of the site.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from attrs import frozen
from sphinx.pycode import ModuleAnalyzer

__all__ = ["PACKAGES", "stage_reference"]

#: The packages, and modules, whose ``__all__`` is public. Packages that others export come first.
PACKAGES = (
    "commitlog",
    "commitlog.outputs",
    "commitlog.spark",
    "commitlog.spark.ingest",
    "commitlog.dask",
    "commitlog.ray",
    "commitlog.ingest",
    "commitlog.namespace",
    "commitlog.filesystem",
    "commitlog.lance",
    "commitlog.iceberg",
    "commitlog.oplog",
    "commitlog.locks",
    "commitlog.stores",
    "commitlog.tables",
    "commitlog.status",
    "commitlog.testing",
    "commitlog.testing.sim",
    "commitlog.testing.stress",
    "commitlog.testing.proxy",
)

#: The page that explains a package.
_EXPLAINED = {
    "commitlog": "quickstart",
    "commitlog.outputs": "outputs",
    "commitlog.spark": "spark",
    "commitlog.spark.ingest": "ingest",
    "commitlog.dask": "dask-and-ray",
    "commitlog.ray": "dask-and-ray",
    "commitlog.ingest": "ingest",
    "commitlog.namespace": "namespace",
    "commitlog.filesystem": "filesystem",
    "commitlog.lance": "lance",
    "commitlog.iceberg": "iceberg",
    "commitlog.oplog": "operation-log",
    "commitlog.locks": "locks",
    "commitlog.stores": "stores",
    "commitlog.tables": "architecture",
    "commitlog.status": "operations",
    "commitlog.testing": "verification",
    "commitlog.testing.sim": "verification",
    "commitlog.testing.stress": "verification",
    "commitlog.testing.proxy": "verification",
}

_SECTIONS = ("Functions", "Classes", "Errors", "Types and constants")


@frozen
class _Entry:
    """A public name.

    Args:
        package: the package on whose page the name is.
        name: the name in the package.
        value: the object that it names.
    """

    package: str
    name: str
    value: object

    @property
    def section(self) -> str:
        """The section of the page that has the name."""
        if inspect.isfunction(self.value):
            return "Functions"
        if inspect.isclass(self.value):
            return "Errors" if issubclass(self.value, BaseException) else "Classes"
        return "Types and constants"

    @property
    def summary(self) -> str:
        """The first line of the docstring, or of the comment."""
        if self.section == "Types and constants":
            return _comment(self).partition("\n")[0]
        return (inspect.getdoc(self.value) or "").partition("\n")[0]

    def directive(self) -> str:
        """Return the directive of Sphinx that renders the name."""
        if self.section == "Types and constants":
            lines = [f".. py:data:: {self.name}", ""]
            return "\n".join([*lines, *(f"   {line}" for line in _comment(self).splitlines())])
        kind = {"Functions": "autofunction", "Classes": "autoclass", "Errors": "autoexception"}
        lines = [f".. {kind[self.section]}:: {self.name}"]
        if inspect.isclass(self.value) and self.value.__base__ is not object:
            lines.append("   :show-inheritance:")
        return "\n".join(lines)


def stage_reference(into: Path) -> None:
    """Write the pages, and ``index.md`` with a list of them.

    Args:
        into: a directory to create.

    Raises:
        LookupError: a public constant or type has no comment ``#:``.
    """
    into.mkdir(parents=True)
    homes: dict[tuple[str, int], _Entry] = {}
    rows = []
    for package in PACKAGES:
        module = import_module(package)
        here: list[_Entry] = []
        elsewhere: list[_Entry] = []
        for name in module.__all__:
            entry = _Entry(package, name, getattr(module, name))
            if not inspect.ismodule(entry.value):
                home = homes.setdefault((name, id(entry.value)), entry)
                (here if home is entry else elsewhere).append(home)
        (into / f"{package}.rst").write_text(_page(module, here, elsewhere))
        rows.append(f"* [`{package}`]({package}.rst): {_introduction(module)[0]}")
    toctree = ["", "```{toctree}", ":hidden:", "", *PACKAGES, "```", ""]
    title = ["# API reference", "", "Each public name, from its docstring.", ""]
    (into / "index.md").write_text("\n".join([*title, *rows, *toctree]))


def _page(module: ModuleType, here: list[_Entry], elsewhere: list[_Entry]) -> str:
    """Return the page of a package."""
    package = module.__name__
    summary, notes = _introduction(module)
    blocks = [
        f"{package}\n{'=' * len(package)}",
        f".. py:module:: {package}",
        f"{summary} See :doc:`/{_EXPLAINED[package]}`.",
    ]
    if elsewhere:
        links = ", ".join(f":py:obj:`{entry.package}.{entry.name}`" for entry in elsewhere)
        blocks.append(f"The package also exports {links}.")
    for section in _SECTIONS:
        entries = sorted((each for each in here if each.section == section), key=lambda each: each.name)
        if entries:
            blocks.append(f"{section}\n{'-' * len(section)}")
            blocks.append(
                "\n".join(f"* :py:obj:`~{package}.{each.name}`: {each.summary}" for each in entries)
            )
            blocks += [each.directive() for each in entries]
    if notes:
        blocks += ["Notes\n-----", notes]
    return "\n\n".join(blocks) + "\n"


def _introduction(module: ModuleType) -> tuple[str, str]:
    """Return the first line of a package's docstring, and the rest."""
    summary, _, notes = (inspect.getdoc(module) or "").partition("\n")
    return summary, notes.strip()


def _comment(entry: _Entry) -> str:
    """Return the comment ``#:`` of a constant or a type, from the module that assigns it."""
    for module in _modules(entry):
        comments = ModuleAnalyzer.for_module(module).find_attr_docs()
        if found := comments.get(("", entry.name)):
            return "\n".join(found).strip()
    raise LookupError(f"{entry.package}.{entry.name} has no comment that begins with #:")


def _modules(entry: _Entry) -> Iterator[str]:
    """Yield the modules that may assign a name: those from which its package has imported it."""
    yield entry.package
    for node in ast.walk(ast.parse(inspect.getsource(import_module(entry.package)))):
        if isinstance(node, ast.ImportFrom) and any(each.name == entry.name for each in node.names):
            yield node.module or entry.package
