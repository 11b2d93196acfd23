"""Names as links to their entries, in docstrings and on pages: an extension of Sphinx.

It also adapts docstrings for autodoc and napoleon.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.nodes import Element, Node, document
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

#: A code span that is taken for a name: with the package, a member with its class, or a class whose name
#: has several words. One word alone, such as `Delete`, may mean something else.
_NAME = re.compile(r"commitlog(?:\.\w+)+|[A-Z]\w+\.\w+|(?:[A-Z][a-z0-9]+){2,}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx."""
    # The handlers of docstrings come before that of napoleon.
    app.connect("autodoc-process-docstring", _link_pages, priority=100)
    app.connect("autodoc-process-docstring", _keep_first_line, priority=100)
    app.connect("autodoc-process-signature", _without_markers)
    app.connect("missing-reference", _find_class)
    app.connect("doctree-resolved", _link_names)
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
    app: Sphinx,
    what: str,
    name: str,
    value: object,
    options: Any,
    signature: str | None,
    returned: str,
) -> tuple[str | None, str]:
    """Replace the marker of attrs for a default that is made for each object."""
    return re.sub(r"\bNOTHING\b", "...", signature) if signature else signature, returned


def _find_class(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: Element
) -> Element | None:
    """Return a link for the name of a class, or of a member, in a docstring of another package."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not _CLASS.fullmatch(target):
        return None
    return _link(app, node["refdoc"], target, content.deepcopy())


def _link_names(app: Sphinx, doctree: document, page: str) -> None:
    """Make links of the code spans on a page that are names with entries."""
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().partition("(")[0]
        if not _NAME.fullmatch(name) or _is_inside(literal, (nodes.reference, nodes.title)):
            continue
        if link := _link(app, page, name, literal.deepcopy()):
            literal.replace_self(link)


def _link(app: Sphinx, page: str, name: str, content: Element) -> Element | None:
    """Return a link from a page to the only entry of a name, whole or without its package."""
    objects = app.env.domains.python_domain.objects
    found = {
        whole: entry
        for whole, entry in objects.items()
        if whole == name or (whole.endswith(f".{name}") and not entry.aliased)
    }
    if len(found) != 1:
        return None
    [(whole, entry)] = found.items()
    return make_refnode(app.builder, page, entry.docname, entry.node_id, content, title=whole)


def _is_inside(node: Node, kinds: tuple[type[Node], ...]) -> bool:
    """Return whether a node is in another one of some kinds."""
    while node := node.parent:
        if isinstance(node, kinds):
            return True
    return False
