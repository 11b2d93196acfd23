"""Settings of Sphinx for the site. `build.py` runs it."""

from __future__ import annotations

from importlib.metadata import version as installed

project = "commitlog"
author = "The commitlog authors"
version = release = installed("commitlog-store")
# Neither a year nor a date: the same pages give the same site.
project_copyright = author

extensions = ["myst_parser"]

# Pages link to headings by the anchors that a code host gives them.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = "commitlog"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/favicon.svg"
