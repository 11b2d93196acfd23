"""The requests of each operation on a namespace, recorded by a proxy in front of the services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from measure import kind_of
from namespace_sites import Site, dynamodb_site, fill, made_up
from servers import Ministack

from commitlog.namespace import Namespace
from commitlog.testing.proxy import Proxy

__all__ = ["measure_requests"]

#: Files of the directory that is listed, renamed and deleted.
FILES = 1_000

#: Operations. All paths have three names, and all directories exist.
_OPERATIONS: dict[str, Callable[[Namespace], object]] = {
    "stat": lambda lake: lake.stat("a/b/old"),
    f"list of {FILES}": lambda lake: list(lake.list("a/b/many")),
    "read": lambda lake: lake.read("a/b/written"),
    "write, new": lambda lake: lake.write("a/b/new", b"x", parents=False),
    "write, over": lambda lake: lake.write("a/b/written", b"x", parents=False),
    "make directory": lambda lake: lake.make_directory("a/b/made"),
    "rename file": lambda lake: lake.rename("a/b/old", "a/c/old"),
    f"rename directory of {FILES}": lambda lake: lake.rename("a/b/many", "a/c/many"),
    "delete file": lambda lake: lake.delete("a/c/old"),
    f"delete directory of {FILES}": lambda lake: lake.delete("a/c/many", recursive=True),
}


def measure_requests(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Count the requests of each operation, with a log and without; return one row for each."""
    rows = []
    with Ministack() as server, Proxy(server.endpoint_url) as proxy:
        for log in (False, True):
            say(f"requests, {'with' if log else 'without'} a log")
            lake = _prepared(dynamodb_site(server, proxy.endpoint_url), log=log)
            for operation, work in _OPERATIONS.items():
                proxy.requests()
                work(lake)
                seen = Counter(_kind(request) for request in proxy.requests())
                rows.append({"operation": operation, "log": log, "requests": dict(sorted(seen.items()))})
            lake.close()
    return rows


def _prepared(site: Site, *, log: bool) -> Namespace:
    lake = site.create(log=log)
    fill(lake, "a/b/many", FILES)
    lake.make_directory("a/c")
    lake.link("a/b/old", made_up("old"))
    lake.write("a/b/written", b"x")
    return lake


def _kind(request: str) -> str:
    # The proxy records a DynamoDB request by its operation, and other requests by their method.
    return request.split(" ")[0] if request.endswith(" /") else kind_of(request)
