"""The faults that a stress run injects, and the reasons for their limits.

A conditional write is as safe as the request that carries it. No client can prevent the following three
effects, so they limit the injected faults:

* The store cannot distinguish a late request from a timely one if the request carries neither a
  condition nor an expiry that the store enforces. Such a request must not arrive late. It is delayed
  only for moments, never for the length of a lease, and its duplicate follows it immediately.
* The store also accepts the duplicate of a request with an expiry if it arrives *before* the expiry but
  after the release of the lease. So the duplicate follows the first copy immediately, or arrives after
  the expiry. The first copy may arrive at any time, because its sender keeps the lease until it has the
  answer or the expiry is over.
* A client retries a creation whose answer was lost. The retry may recreate an object that another client
  removed meanwhile (docs/protocol.md, "Lost answers"). A late creation that only its condition guards
  does the same. So answers to creations are lost only at paths below `KEPT`, where objects are never
  removed, and, if no copy of the request is still under way, below `OWN`, where no other client removes
  objects.

All requests to the table carry conditions on generations, so every fault may strike them.
"""

from __future__ import annotations

from collections.abc import Iterator

from commitlog.testing.proxy_faults import Action, Hazard

__all__ = ["KEPT", "OWN", "REMOVABLE", "hazards"]

#: Path prefix of objects that any worker may create and replace.
KEPT = "kept/"
#: Path prefix of objects that any worker may create, replace and remove.
REMOVABLE = "gone/"
#: Path prefix of objects that only one call of one client uses: the sources of copies and renames.
OWN = "own/"

#: Short delays in seconds: much shorter than the rest of a lease when a request is sent.
_MOMENTS = (0.0, 0.3)

_AT_ONCE: tuple[Action, ...] = ("drop_response", "fail")
_LOSSES: tuple[Action, ...] = (*_AT_ONCE, "reset")
_LATE: tuple[Action, ...] = ("duplicate", "reset")
_WRITES = ("PUT", "PUBLISH")


def hazards(*, timeout: float, fenced: bool, rate: float) -> tuple[Hazard, ...]:
    """Return the faults of a run.

    Args:
        timeout: length of a lease in seconds.
        fenced: whether the store enforces the expiry of requests.
        rate: the share of the requests that a hazard applies to and strikes. A hazard that makes a
            client wait for the length of a lease strikes a quarter as often, because otherwise a run
            would mostly wait. A late duplicate makes no client wait and strikes four times as often.
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
        # A lease ends after the expiry of its requests. The store rounds to seconds: add one second.
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
