"""Build the documentation: ``./run docs [DIRECTORY]`` writes the site into ``build/docs`` by default.

Each warning of Sphinx is an error, so a link without a target, a page that no table of contents lists,
and a docstring that does not parse fail the build. With ``--external-links``, links to other hosts are
requested, too, and one that leads nowhere is an error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from pages import GeneratedPage, stage
from reference import stage_reference
from sphinx.cmd.build import build_main

#: The root of the checkout.
ROOT = Path(__file__).parents[2]

_REFERENCE = GeneratedPage(
    section="Reference", place="api/index", title="API reference", summary="each public name, once."
)


def build(into: Path, *, external_links: bool = False) -> int:
    """Build the site in an empty directory; return the exit status.

    Args:
        into: a directory, whose content is removed: ``html`` in it gets the site, ``source`` the pages
            as Sphinx reads them.
        external_links: request links to other hosts, too.
    """
    shutil.rmtree(into, ignore_errors=True)
    source = into / "source"
    # A checkout that has only pages gives a site of these.
    generated = [_REFERENCE] if (ROOT / "commitlog").is_dir() else []
    stage(ROOT, source, generated)
    if generated:
        stage_reference(source / "api")
    options = ["--fail-on-warning", "--keep-going", "--quiet"]
    options += ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(into / "doctrees")]
    status = build_main([*options, "--builder", "html", str(source), str(into / "html")])
    if external_links:
        status |= build_main([*options, "--builder", "linkcheck", str(source), str(into / "links")])
    return status


def main() -> None:
    """Build the site, and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", default=ROOT / "build/docs")
    parser.add_argument("--external-links", action="store_true", help="check links to other hosts, too")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    status = build(directory, external_links=arguments.external_links)
    if not status:
        print(directory / "html/index.html")
    sys.exit(status)


if __name__ == "__main__":
    main()
