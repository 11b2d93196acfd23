"""A mutant: a rule of a protocol, the change that breaks it, and a world in which the judge notices."""

from __future__ import annotations

import difflib
import re
from functools import cache

from attrs import evolve, field, frozen

from commitlog.testing.sim import Exploration, Violation, explore
from mutation.edits import Edit
from mutation.library import COMMITLOG
from mutation.loader import load
from mutation.worlds import Setting

__all__ = ["Mutant"]


@frozen(kw_only=True)
class Mutant:
    """One rule broken.

    Attributes:
        name: a short description of the broken behaviour.
        where: page and heading of the documentation that state the rule.
        rule: that rule, in Markdown.
        edit: the change.
        setting: makes the smallest world that was found in which the rule is needed. The unchanged
            library passes all its runs.
        caught: a regular expression that matches the error of the judge.
        story: an explanation of the shortest counter-example.
        saved: whether nothing goes wrong in that world if the store enforces the expiry of requests. If
            so, the counter-example has a store that does not. None: expiry plays no part.
    """

    name: str
    where: str
    rule: str
    edit: Edit
    setting: Setting = field(eq=False)
    caught: str
    story: str
    saved: bool | None = None

    def search(self) -> Exploration:
        """Make every run of the world in which it is caught, with the change."""
        return _search(self, not self.saved)

    def search_with_expiry(self) -> Exploration:
        """Make every run of the same world, with the change, if the store enforces the expiry."""
        return _search(self, True)

    def search_unchanged(self) -> Exploration:
        """Make every run of the world in which it is caught, with a copy of the unchanged library."""
        return _search(evolve(self, edit=self.edit.none()), not self.saved)

    def counterexample(self) -> Violation:
        """Return the shortest run with the expected error. Raises `AssertionError` if there is none."""
        found = self.search()
        caught = [v for v in found.violations if re.search(self.caught, str(v.error))]
        others = {str(v.error) for v in found.violations}
        assert caught, f"{self.name}: not caught by {self.caught!r} in {found.ends} runs, but {others}"
        return min(caught, key=lambda violation: (violation.faults, len(violation.trace)))

    def diff(self) -> str:
        """Return the change as a diff of each file, without line numbers, which other changes shift."""
        lines = []
        for module, source in self.edit.sources(limits=False).items():
            before = COMMITLOG.source(module).splitlines()
            file = COMMITLOG.files[module].relative_to(COMMITLOG.top.parent)
            lines.append(f"  {file.as_posix()}")
            changed = difflib.unified_diff(before, source.splitlines(), n=1, lineterm="")
            for line in list(changed)[3:]:
                lines.append("   ..." if line.startswith("@@") else f"{line[0]} {line[1:]}".rstrip())
        return "\n".join(lines)


@cache
def _search(mutant: Mutant, enforces_expiry: bool) -> Exploration:
    return explore(mutant.setting(load(mutant.edit), enforces_expiry), most_violations=None)
