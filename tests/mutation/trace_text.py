"""The trace of a simulation as readable text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from operator import itemgetter

from commitlog.testing.sim import EPOCH

__all__ = ["format_trace", "shorten"]

_LINE = re.compile(r" *([0-9.]+)  (.*)")
#: The events of a request: its name, and the details.
_KINDS = {
    "sent": re.compile(r"(?P<node>\w+) (?P<name>(?P=node)\d+): (?P<how>.*)"),
    "performed": re.compile(r"  (?P<name>\w+'?) .*?: (?P<how>.*)"),
    "answered": re.compile(r"\w+ (?P<name>\w+) -> (?P<how>.*)"),
}
#: Lines that every run has, and that explain nothing.
_NOISE = re.compile(r"\w+ (starts|ends|goes on|could know .*|[a-z_ ]+: \d+ begun, .*)")

#: Text that explains nothing or is the same in all lines, and its replacement.
_SHORTER = (
    # items of namespaces
    (r"\{'body': b'.*?', 'change_id': '[^']*', 'name': '[^']*', 'place': 'namespaces'\}", "the marker"),
    (
        r"\{'body': b'.*?', 'change_id': '[^']*', 'id': '([^']*)', 'name': '[^']*', 'place': '[^']*',"
        r" 'version': (\d+)\}",
        r"version \2 of \1",
    ),
    (
        r"\{'change_id': '([^']*)', 'name': '-', 'place': '[^']*', 'shards': (\d+)\}",
        r"change \1, shards \2",
    ),
    (
        r"\{'place': '[^']*', 'name': '[^']*', 'id': '([^']*)', 'version': (\d+),"
        r" 'change_id': '[^']*', 'body': b'.*?'\}",
        r"version \2 of \1",
    ),
    (r"\{'place': '[^']*/x/[^']*', 'name': '[^']*', 'change_id': '[^']*', 'body': b'.*?'\}", "garbage"),
    (
        r"\{'place': '[^']*/t/[^']*', 'name': '[^']*', 'change_id': '[^']*', 'body': b'.*?'\}",
        "tombstone",
    ),
    (
        r"\{'body': b'[^}]*\}', 'change_id': '[^']*', 'name': '[^']*', 'place': '[^']*/t/[^']*'\}",
        "tombstone",
    ),
    (r"(TransactionCanceled): .* item '\w+/[a-z]/.*", r"\1"),
    (r"(NotFound|AlreadyExists|PreconditionFailed|RequestExpired): .*", r"\1"),
    (r"(Unavailable|Conflict|OutcomeUnknown): .*", r"\1"),
    (r"\{'etag'.*'verdict'.*\}", "a finding"),
    (
        r"\{'etag'.*?'generation': (\d+), 'owner': '(.*?)', .*?'timeout': (\d+).*?\}",
        r"generation \1, owner \2, timeout \3",
    ),
    (r"StagedInfo\(path='(.*?)', upload_id='(.*?)', initiated=[\d.]+\)", r"upload \2"),
    (r"Commit\(version=(\d+),.*\)", r"commit \1"),
    (r" commitlog-nonce=.*?(?= version=| b'| at |$)", ""),
    (r' b\'\{.*"kind":"(\w+)".*\}\'', r", a record of kind \1"),
    (r" b'.*?'$", ""),
    (r" @-?[\d.]+", ""),
    (r"""\{[^{}]*'item': 'epoch/0*(\d+)/0*(\d+)/\d+'.*?b(['"]).*?\3\}""", r"files of epoch \1"),
    (r"""\{[^{}]*'item': '(problem|wanted)/.*?b'.*?'.*?\}""", r"a row of \1"),
    (r"\{[^{}]*b'[^']*\"epoch\":(\d+)[^']*\"ingest-list[^']*'[^{}]*\}", r"list row at epoch \1"),
    (r"ItemPage\(items=\((.*?),?\), next_token=None\)", r"[\1]"),
    (r" \[\] None$", ""),
    (r"\b[0-9a-f]{26}([0-9a-f]{6})\b", r"\1"),
    (r"\b0{10,}(\d+)\.json", r"\1.json"),
    (rf"\b{int(EPOCH * 1000)}-", ""),
    (rf" at {int(EPOCH) // 10_000}0*(\d+)$", r" at \1 s"),
)


def shorten(text: str) -> str:
    """Return a line without identifiers and other text that explain nothing."""
    for pattern, shorter in _SHORTER:
        text = re.sub(pattern, shorter, text)
    return text


def format_trace(trace: Sequence[str]) -> list[str]:
    """Return the lines of a trace, with a request and its answer in one line if they are adjacent.

    >>> format_trace(["    0.0  A A1: put k", "    0.0    A1 put k: done", "    0.0  A A1 -> done"])
    ['    0  A1: put k → done']
    >>> format_trace(["    0.000  A A1: head k", "    0.000  B ends", "    2.500  A A1 -> nothing"])
    ['    0  A1: head k', '  2.5  A1 → nothing']
    """
    lines = (match.groups() for match in map(_LINE.fullmatch, trace) if match)
    events = [(f"{float(at):5.4g}", *_event(what)) for at, what in lines if not _NOISE.fullmatch(what)]
    asked = {name: what for _, name, kind, what in events if kind == "sent"}
    heard = (event for event in events if asked.get(event[1]) != "table.check")
    formatted = []
    for (moment, name), group in itertools.groupby(heard, key=itemgetter(0, 1)):
        said = {kind: shorten(what) for _, _, kind, what in group}
        line = f"{moment}  {name}" + (f": {said['sent']}" if "sent" in said else "")
        if "answered" in said:
            nothing = said["answered"] == "done" and asked[name].startswith("table.get")
            line += f" → {'nothing' if nothing else said['answered']}"
        elif "performed" in said:
            line += f", performed: {said['performed']}"
        formatted.append(shorten(line))
    return formatted


def _event(what: str) -> tuple[str, str, str]:
    """Return the name of a request, its event and the details. Other lines are returned as the name."""
    for kind, pattern in _KINDS.items():
        if match := pattern.fullmatch(what):
            return match["name"], kind, match["how"]
    return what, "", ""
