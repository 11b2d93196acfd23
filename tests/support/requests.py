"""A recorder of requests that only counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["Recorder"]


class Recorder:
    """Counts requests, as the recorder of a `CountingStore`.

    Attributes:
        requests: the number of requests by their names.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def request(self, kind: str, call: Callable[[], Any], **more: int) -> Any:
        """Count a request."""
        self.requests[kind] += 1
        return call()

    def add(self, kind: str, number: int = 1) -> None:
        """Count requests."""
        self.requests[kind] += number

    def finish(self, call: Callable[[], Any]) -> Any:
        """Wait for a request that was counted."""
        return call()
