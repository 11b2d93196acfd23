"""Which faults a stress run may let strike which requests, and why not all of them.

A conditional write is as safe as the request that carries it. Three things follow, which no client can
help, and which bound what is injected here:

* A request to the store that carries neither a condition nor an expiry that the store enforces must not
  arrive late: nothing there tells it from a timely one. So it is held back for moments only, never for
  as long as a lease lasts, and it is sent twice only back to back.
* The same goes for one with an expiry, sent again *within* it but after its lease was released. So its
  second copy comes right behind the first, or after the expiry. A first copy may come at any time, since
  its sender keeps the lease until the answer is there or the expiry is over.
* A creation whose answer was lost is tried again, and may so create anew what somebody removed meanwhile
  (docs/protocol.md, "Lost answers"); and one that is guarded by its condition alone does so if it comes
  late. So answers of creations are lost only at paths below `KEPT`, from which nothing is removed, and,
  if nothing is still under way, below `OWN`, from which nobody else removes anything.

Requests to the table all carry conditions on generations, so anything may happen to them.

Imports its sibling `proxy_faults`.
"""

from __future__ import annotations

from collections.abc import Iterator

from commitlog.testing.proxy_faults import Action, Hazard

__all__ = ["KEPT", "OWN", "REMOVABLE", "hazards"]

#: What the paths of objects start with that are created and replaced, by anybody.
KEPT = "kept/"
#: Of those that are removed as well, by anybody.
REMOVABLE = "gone/"
#: Of those that one call of one client uses: sources of copies and renames.
OWN = "own/"

#: Moments, in seconds: much shorter than what is left of a lease when a request is sent.
_MOMENTS = (0.0, 0.3)

_AT_ONCE: tuple[Action, ...] = ("drop_response", "fail")
_LOSSES: tuple[Action, ...] = (*_AT_ONCE, "reset")
_LATE: tuple[Action, ...] = ("duplicate", "reset")
_WRITES = ("PUT", "PUBLISH")


def hazards(*, timeout: float, fenced: bool, rate: float) -> tuple[Hazard, ...]:
    """Return what may go wrong in a run.

    Args:
        timeout: length of a lease in seconds.
        fenced: whether the store enforces the expiry of requests.
        rate: share of requests that each of the hazards strikes, of those that it applies to. Those that
            make somebody wait for as long as a lease strike a quarter as often, or a run would consist
            of waiting; late duplicates, for which nobody waits, four times as often.
    """
    return tuple(_hazards(timeout, fenced, rate))


def _hazards(timeout: float, fenced: bool, rate: float) -> Iterator[Hazard]:
    rare, often, beyond = rate / 4, min(4 * rate, 1.0), (timeout, 2 * timeout)
    for kind in ("DynamoDB", "S3"):
        yield Hazard(kinds=(kind,), action="drop_request", rate=rare)
        yield Hazard(kinds=(kind,), action="delay", rate=rate, seconds=_MOMENTS)
    for kind in ("DynamoDB", "HEAD", "GET"):
        yield Hazard(kinds=(kind,), action="drop_request", rate=rate)
        yield from _losses(rate, kind)
        yield Hazard(kinds=(kind,), action="delay", rate=rare, seconds=beyond)
    yield Hazard(kinds=("DynamoDB",), action="reset", rate=rare, seconds=beyond)
    for longest in (_MOMENTS[1], 2 * timeout):
        yield Hazard(kinds=("DynamoDB",), action="duplicate", rate=rate, seconds=(0.01, longest))
    yield from _losses(rate, "DELETE")
    for kind in _WRITES:
        yield from _losses(rate, kind, path=KEPT)
    for action in _AT_ONCE:
        yield Hazard(kinds=("PUT",), action=action, rate=rate, path=OWN)
    for kind in (*_WRITES, "DELETE"):
        yield Hazard(kinds=(kind,), action="duplicate", rate=rate)
    for guard in ("if-match", *(["fenced"] if fenced else [])):
        yield Hazard(kinds=(guard,), action="delay", rate=rare, seconds=beyond)
        # A lease ends after the expiry of its requests; a second more for the store to round away.
        late = (timeout + 1, 2 * timeout + 1)
        yield Hazard(kinds=(guard,), action="duplicate", rate=often, seconds=late)
        for kind, path in (("PUT", KEPT), ("PUBLISH", KEPT), ("DELETE", "")):
            yield Hazard(
                kinds=(guard, kind), action="reset", rate=rare, path=path, seconds=(0.01, 2 * timeout)
            )
    yield Hazard(kinds=("if-absent",), action="delay", rate=rare, seconds=beyond)
    for action in _LATE:
        yield Hazard(
            kinds=("if-absent",), action=action, rate=rate, path=KEPT, seconds=(0.01, 2 * timeout)
        )


def _losses(rate: float, kind: str, *, path: str = "") -> Iterator[Hazard]:
    for action in _LOSSES:
        yield Hazard(kinds=(kind,), action=action, rate=rate, path=path, seconds=_MOMENTS)
