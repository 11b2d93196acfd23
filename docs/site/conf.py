"""Settings of Sphinx for the site. `build.py` runs it."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

# For the extension `names`.
sys.path.insert(0, str(Path(__file__).parent))

project = "commitlog"
author = "The commitlog authors"
version = release = installed("commitlog-store")
# Neither a year nor a date: the same pages give the same site.
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "names"]

# Pages link to headings by the anchors that a code host gives them.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

# `name` in a docstring is a link where the name has an entry.
default_role = "py:obj"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
# Attributes are a list in the text: as entries of their own, names such as `bytes` would hide types.
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False

# Code hosts make the anchors of their pages with scripts.
linkcheck_anchors = False
linkcheck_timeout = 30

html_theme = "furo"
html_title = "commitlog"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/favicon.svg"
