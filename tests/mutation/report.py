"""The report of all mutants, each with its change and the shortest run in which it goes wrong.

``./run mutants [FILE]`` writes it; without a FILE to build/mutants.md.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from mutation.iceberg import ICEBERG
from mutation.ingest_cleaning import INGEST_CLEANING
from mutation.ingest_epochs import INGEST_EPOCHS
from mutation.ingest_listing import INGEST_LISTING
from mutation.ingest_notifications import INGEST_NOTIFICATIONS
from mutation.lance import LANCE
from mutation.lease_acquire import LEASE_ACQUIRE
from mutation.lease_timeouts import LEASE_TIMEOUTS, SURVIVORS
from mutation.lease_writes import LEASE_WRITES
from mutation.locks import LOCKS
from mutation.mutant import Mutant
from mutation.namespace_bindings import NAMESPACE_BINDINGS
from mutation.namespace_maintenance import NAMESPACE_MAINTENANCE
from mutation.namespace_moves import NAMESPACE_MOVES
from mutation.namespace_names import NAMESPACE_NAMES
from mutation.native import NATIVE
from mutation.oplog import OPLOG
from mutation.output_commits import OUTPUT_COMMITS
from mutation.output_decisions import OUTPUT_DECISIONS
from mutation.trace_text import format_trace, shorten
from support.project import ROOT

__all__ = ["GROUPS", "MUTANTS", "write_report"]

#: The mutants of each protocol.
GROUPS: Mapping[str, tuple[Mutant, ...]] = {
    "Leases": (*LEASE_ACQUIRE, *LEASE_TIMEOUTS, *LEASE_WRITES),
    "Native conditions": NATIVE,
    "Outputs": (*OUTPUT_DECISIONS, *OUTPUT_COMMITS),
    "Operation logs": OPLOG,
    "Locks": LOCKS,
    "Iceberg catalogs": ICEBERG,
    "Sources": (*INGEST_LISTING, *INGEST_EPOCHS, *INGEST_CLEANING, *INGEST_NOTIFICATIONS),
    "Namespaces": (*NAMESPACE_NAMES, *NAMESPACE_MOVES, *NAMESPACE_BINDINGS, *NAMESPACE_MAINTENANCE),
    "Lance tables": LANCE,
}

MUTANTS: tuple[Mutant, ...] = tuple(mutant for group in GROUPS.values() for mutant in group)

_HEAD = """\
# All mutants

[Mutants](mutants.md) explains what a mutant is, and how to read a counter-example.
"""

_LEASES = """\
These worlds have a store that ignores conditions. The last column says whether a run goes wrong even if
the store enforces [the expiry](protocol.md#the-expiry-that-the-store-enforces) of requests, as stores
that check signatures do. *No* means that the expiry alone prevents it. The counter-example then has a
store that does not enforce it.
"""

_SURVIVORS = """\
## Survivors

These mutants are not caught, because another rule prevents the damage. The first two are harmless in the
world that catches *reclaim by the generation alone*. The third is harmless in a world in which any
request may arrive twice.
"""


def write_report(
    file: Path,
    groups: Mapping[str, Sequence[Mutant]] = GROUPS,
    survivors: Sequence[Mutant] = SURVIVORS,
) -> None:
    """Search the world of each mutant, and write the report.

    Raises:
        AssertionError: a mutant is not caught.
        OutOfDate: a mutant no longer fits the code.
    """
    parts = [_HEAD]
    for title, mutants in groups.items():
        parts += [f"## {title}\n", _table(mutants), *map(_section, mutants)]
    text = "\n".join([*parts, _SURVIVORS, *map(_rule_and_change, survivors)])
    file.parent.mkdir(parents=True, exist_ok=True)
    docs = Path(os.path.relpath(ROOT / "docs", file.parent.resolve())).as_posix()
    file.write_text(re.sub(r"\]\(([\w-]+\.md)", rf"]({docs}/\1", text))


def _table(mutants: Sequence[Mutant]) -> str:
    heads = ["mutant", "faults", "steps"]
    leases = any(mutant.saved is not None for mutant in mutants)
    if leases:
        heads.append("wrong with expiry")
    rows = [heads, ["---"] * len(heads), *([*_row(mutant)][: len(heads)] for mutant in mutants)]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([*([_LEASES] if leases else []), *lines, ""])


def _row(mutant: Mutant) -> Sequence[str]:
    found = mutant.counterexample()
    wrong = {None: "breaks the expiry", True: "no", False: "yes"}[mutant.saved]
    return mutant.name, str(found.faults), str(len(format_trace(found.trace))), wrong


def _section(mutant: Mutant) -> str:
    found = mutant.counterexample()
    judged = shorten(re.split(r"; | \(|\n", str(found.error))[0])
    lines = (*format_trace(found.trace), f"judged: {judged}")
    return "\n".join((_rule_and_change(mutant), "```", *lines, "```", ""))


def _rule_and_change(mutant: Mutant) -> str:
    page = mutant.where.partition(".")[0]
    return "\n".join(
        (
            f"### {mutant.name[0].upper()}{mutant.name[1:]}\n",
            _wrapped(f"The rule ([{page}]({mutant.where})): {mutant.rule}."),
            "",
            "```diff",
            mutant.diff(),
            "```",
            "",
            _wrapped(mutant.story),
            "",
        )
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False)


def main(arguments: Sequence[str]) -> None:
    """Write the report to the given file, or to build/mutants.md."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        sys.exit("usage: ./run mutants [FILE]")
    file = Path(arguments[0]) if arguments else ROOT / "build" / "mutants.md"
    print(f"searching the worlds of {len(MUTANTS)} mutants, which takes minutes", file=sys.stderr)
    write_report(file)
    print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
