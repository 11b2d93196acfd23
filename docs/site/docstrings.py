"""Docstrings as entries of the reference: an extension of Sphinx, on top of autodoc and napoleon."""

from __future__ import annotations

import re
from typing import Any

from docutils.nodes import Element
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

__all__ = ["setup"]

#: A page of the documentation, as docstrings name it.
_PAGE = re.compile(r"(?:``)?\bdocs/([\w/-]+)\.md\b(?:``)?")

#: A class, or a member of one.
_CLASS = re.compile(r"[A-Z]\w*(?:\.\w+)*")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx."""
    # The handlers of docstrings come before that of napoleon.
    app.connect("autodoc-process-docstring", _link_pages, priority=100)
    app.connect("autodoc-process-docstring", _keep_first_line, priority=100)
    app.connect("autodoc-process-signature", _without_markers)
    app.connect("missing-reference", _find_class)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link_pages(
    app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]
) -> None:
    lines[:] = [_PAGE.sub(r":doc:`docs/\1.md </\1>`", line) for line in lines]


def _keep_first_line(
    app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from taking the first line of a property, up to a colon, for a type."""
    if what in ("attribute", "property"):
        # An empty comment.
        lines[:0] = ["..", ""]


def _without_markers(
    app: Sphinx, what: str, name: str, value: object, options: Any, signature: str | None, returned: str
) -> tuple[str | None, str]:
    """Replace the marker of attrs for a default that is made for each object."""
    return re.sub(r"\bNOTHING\b", "...", signature) if signature else signature, returned


def _find_class(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: Element
) -> Element | None:
    """Return a link for the name of a class, or of a member, if one package has an entry for it."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not _CLASS.fullmatch(target):
        return None
    domain = env.domains.python_domain
    entries = [
        (name, entry)
        for name, entry in domain.objects.items()
        if name.endswith(f".{target}") and not entry.aliased
    ]
    if len(entries) != 1:
        return None
    [(name, entry)] = entries
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, content.deepcopy(), title=name
    )
