"""A mutant: a rule of a protocol, the change that breaks it, and the world in which that comes out."""

from __future__ import annotations

import difflib
import re
from functools import cache

from attrs import evolve, field, frozen

from commitlog.testing.sim import Exploration, Violation, explore
from mutants.loader import Edit, load
from mutants.worlds import Setting

__all__ = ["Mutant"]


@frozen(kw_only=True)
class Mutant:
    """One rule broken.

    Attributes:
        name: what is done instead, in words.
        where: page and heading of the documentation on which the rule stands that it breaks.
        rule: that rule, in Markdown.
        edit: the change.
        setting: makes the smallest world that was found in which the rule is needed. The library as it
            is passes all its runs.
        caught: what the judge says, as a regular expression.
        story: what went wrong in the shortest counter-example, in words.
        saved: whether nothing goes wrong in that world if the store enforces the expiry of requests. The
            counter-example is then one of a store that does not. None: expiry has no part in it.
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
        """Make every run of the world in which it is caught, with a copy of the library as it is."""
        return _search(evolve(self, edit=self.edit.none()), not self.saved)

    def counterexample(self) -> Violation:
        """Return the shortest of the runs that are judged as they should be. Raises `AssertionError`."""
        found = self.search()
        caught = [v for v in found.violations if re.search(self.caught, str(v.error))]
        others = {str(v.error) for v in found.violations}
        assert caught, f"{self.name}: not caught by {self.caught!r} in {found.ends} runs, but {others}"
        return min(caught, key=lambda violation: (violation.faults, len(violation.trace)))

    def diff(self) -> str:
        """Return the change as a diff, without its places in the file, which others change."""
        before = self.edit.source.splitlines()
        after = self.edit.apply(self.edit.source).splitlines()
        lines = list(difflib.unified_diff(before, after, n=1, lineterm=""))[3:]
        shown = [
            "   ..." if line.startswith("@@") else f"{line[0]} {line[1:]}".rstrip() for line in lines
        ]
        return "\n".join(shown)


@cache
def _search(mutant: Mutant, fences: bool) -> Exploration:
    return explore(mutant.setting(load(mutant.edit), fences), most_violations=None)
