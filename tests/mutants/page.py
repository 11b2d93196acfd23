"""docs/mutants.md: all mutants, each with its change and the shortest run in which it goes wrong.

Write it anew with ``PYTHONPATH=tests python -m mutants.page``. Imports the mutants.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from mutants.binding import BINDING
from mutants.deciding import DECIDING
from mutants.handing import HANDING
from mutants.listing import LISTING
from mutants.moving import MOVING
from mutants.mutant import Mutant
from mutants.naming import NAMING
from mutants.native import NATIVE
from mutants.oplog import OPLOG
from mutants.publishing import PUBLISHING
from mutants.taking import TAKING
from mutants.telling import plain, told
from mutants.tending import TENDING
from mutants.waiting import SPARE, WAITING
from mutants.writing import WRITING

__all__ = ["MUTANTS", "PAGE", "frame", "page", "row", "section", "spare"]

PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"

_GROUPS = {
    "Leases": (*TAKING, *WAITING, *WRITING),
    "Native conditions": NATIVE,
    "Outputs": (*DECIDING, *PUBLISHING),
    "Operation logs": OPLOG,
    "Sources": (*LISTING, *HANDING),
    "Namespaces": (*NAMING, *MOVING, *BINDING, *TENDING),
}

MUTANTS: tuple[Mutant, ...] = tuple(mutant for group in _GROUPS.values() for mutant in group)

_HEAD = """\
# Mutants: the checker can fail

A checker that has never found anything may be one that cannot. So the rules of the protocols are broken
here, one at a time, in the source of the very code that runs in production, and the simulator has to
find out. The default test run looks for each of these mutants anew, in all runs of a small world; the
library as it is passes all runs of that world.

This page is written by `PYTHONPATH=tests python -m mutants.page`; a test compares it with the code.

**How to read a counter-example.** It is the shortest of all runs that were judged wrong: of the fewest
faults, then of the fewest steps. A line begins with the moment, in seconds. `A3: put k` is the third
request of node A, and `A3 → done` its answer; both are in one line if nothing comes in between. Requests
to the table of leases are named `table.…`; they name a record by path and etag, `*` for *no object*. The
first `table.put` of a call takes the lease, the last one gives it back. Objects are shown with their
etag and `version`: `A:1` is the first that A writes. A clock that is as fast as clocks may be counts
1.5 s a second, which is `max_clock_skew_rate` in these worlds. Sources have a grace window of ten
seconds, and hand out a file an epoch; a driver reads each epoch before it asks for the next one. In a
namespace, `table.get lake/e/w2/0 b` looks for the name `b` in the first shard of the directory `w2`, and
finds `version 1 of w3`, say; a `table.transact` is one change; its [invariants](namespace.md#invariants)
are I1, I2, and so on.
"""

_LEASES = """\
All of these worlds are of a store that ignores conditions. The last column says whether things go wrong,
in the same world, even if the store enforces
[the expiry](protocol.md#the-expiry-that-the-store-enforces) of requests, as real ones do that check
signatures. Where it says *no*, that alone prevents it, and the counter-example is one of a store that
does not.
"""


_SPARE = """\
## Rules for which something else stands in

These mutants are not caught. The first two are harmless in the very world that catches *reclaim by the
generation alone*, the third in one in which any request may arrive twice.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, mutants in _GROUPS.items():
        parts += [f"## {title}\n", _table(mutants), *map(section, mutants)]
    return "\n".join([*parts, _SPARE, *map(spare, SPARE)])


def _table(mutants: Sequence[Mutant]) -> str:
    heads = ["mutant", "faults", "steps"]
    if _leased(mutants):
        heads.append("wrong even so")
    lines = [_line(heads), _line(["---"] * len(heads)), *map(row, mutants)]
    return "\n".join([*([_LEASES] if _leased(mutants) else []), *lines, ""])


def _leased(mutants: Sequence[Mutant]) -> bool:
    return any(mutant.saved is not None for mutant in mutants)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def row(mutant: Mutant) -> str:
    """Return the line of one mutant in the table of its group."""
    found = mutant.counterexample()
    cells = [mutant.name, str(found.faults), str(len(told(found.trace)))]
    if any(mutant in group and _leased(group) for group in _GROUPS.values()):
        cells.append({None: "it breaks them", True: "no", False: "yes"}[mutant.saved])
    return _line(cells)


def frame(text: str | None = None) -> str:
    """Return a page, or the one that is due, with the mutants' names and without what they come to."""
    if text is None:
        parts = [_HEAD]
        for title, mutants in _GROUPS.items():
            parts += [f"## {title}\n", *([_LEASES] if _leased(mutants) else [])]
            parts += [*(f"| {mutant.name} |" for mutant in mutants), *map(_heading, mutants)]
        text = "\n".join([*parts, _SPARE, *map(_heading, SPARE)])
    text = re.sub(r"(?ms)^(### [^\n]*\n).*?(?=^##|\Z)", r"\1", text)
    text = re.sub(r"(?m)^\| (mutant|---) \|.*\n", "", text)
    return re.sub(r"(?m)^(\| [^|]* \|).*$", r"\1", text).replace("\n\n", "\n")


def section(mutant: Mutant) -> str:
    """Return what the page says of one mutant."""
    found = mutant.counterexample()
    judged = plain(re.split(r"; | \(|\n", str(found.error))[0])
    lines = (*told(found.trace), f"judged: {judged}")
    return "\n".join((spare(mutant), "```", *lines, "```", ""))


def spare(mutant: Mutant) -> str:
    """Return what there is to say of a mutant without a counter-example."""
    where = mutant.where.partition(".")[0]
    return "\n".join(
        (
            _heading(mutant),
            _wrapped(f"The rule ([{where}]({mutant.where})): {mutant.rule}."),
            "",
            "```diff",
            f"  {mutant.edit.module.replace('.', '/')}.py",
            mutant.diff(),
            "```",
            "",
            _wrapped(mutant.story),
            "",
        )
    )


def _heading(mutant: Mutant) -> str:
    return f"### {mutant.name[0].upper()}{mutant.name[1:]}\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page())
