"""`Proxy`: starts the proxy's process and controls it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict

from commitlog.errors import Unavailable
from commitlog.testing.processes import ProcessOwner
from commitlog.testing.proxy.faults import Hazard, ProxyFault, Strike

__all__ = ["Proxy"]


class Proxy(ProcessOwner):
    """A proxy in front of `upstream`, as a context manager.

    Args:
        upstream: URL of the server, such as ``http://127.0.0.1:8000``.
        dynamodb: URL of another server, for the requests of DynamoDB; so that one endpoint serves both.
        latency: seconds to add to each request of a kind.
        like_ceph: let the server behave as Ceph's radosgw 16 does, see `commitlog.testing.proxy.relay`.

    The kind of a request is its HTTP method for S3 (``HEAD``, ``PUT``, …), but ``COPY`` for a
    CopyObject and ``PUBLISH`` for a CompleteMultipartUpload, and the operation for DynamoDB
    (``PutItem``, …), taken from the ``X-Amz-Target`` header. A request is of wider kinds as well:
    ``PUT`` for ``COPY``, ``POST`` for ``PUBLISH``, ``S3`` or ``DynamoDB``; and ``if-absent`` or
    ``if-match`` if it carries that condition, ``expiring`` if its signature expires. Of several
    latencies, that of the narrowest kind applies. It passes before the server gets the request.

    The methods may be called from any thread. An instance can be entered once.
    """

    def __init__(
        self,
        upstream: str,
        *,
        dynamodb: str | None = None,
        latency: Mapping[str, float] | None = None,
        like_ceph: bool = False,
    ) -> None:
        self._upstream = upstream
        self._settings = [upstream, dynamodb or upstream, dict(latency or {}), like_ceph]
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self._lock = threading.Lock()

    def _start(self) -> None:
        code = "from commitlog.testing.proxy.relay import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._port = self._answer()

    def stop(self) -> None:
        """End the proxy; requests under way are cut off. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    @property
    def endpoint_url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._port}"

    def inject(self, fault: ProxyFault) -> None:
        """Inject a fault into the next requests that match it.

        Several faults form a queue: the first that matches a request strikes it.
        """
        self._ask("inject", asdict(fault))

    def endanger(self, hazards: Iterable[Hazard], *, seed: int = 0) -> None:
        """Replace the hazards that strike from now on. An empty `hazards` ends all of them.

        The faults of the n-th request of its kind (counted from here) depend on `seed`, the kind and n
        alone. Which request is the n-th depends on timing: the seed reproduces the plan, not the run. A
        `ProxyFault` takes precedence over a hazard.
        """
        self._ask("endanger", [asdict(hazard) for hazard in hazards], seed)

    def strikes(self) -> Counter[Strike]:
        """Return the effects of faults so far, with their counts; `pending` ones are not counted yet."""
        return Counter({Strike(*what): count for *what, count in self._ask("strikes")})

    def pending(self) -> int:
        """Return the number of requests that are delayed, or whose duplicate is not sent yet."""
        number: int = self._ask("pending")
        return number

    def requests(self) -> list[str]:
        """Return the requests since the last call, as ``"PUT /bucket/key"``, in order.

        They include dropped requests. Only the last ten thousand are kept.
        """
        seen: list[str] = self._ask("requests")
        return seen

    def _ask(self, method: str, *arguments: Any) -> Any:
        assert self._process is not None and self._process.stdin is not None, "not started"
        with self._lock:
            try:
                self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                pass  # `_answer` raises the error
            return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"the proxy of {self._upstream} has ended; its error is on stderr")
        return json.loads(line)
