"""Spans that a test records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

__all__ = ["Recording", "recorded"]


class Recording:
    """The spans of a test, in memory.

    Attributes:
        provider: makes the spans.
    """

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def take(self) -> Sequence[ReadableSpan]:
        """Return the spans that have ended since the last call, in the order of their ends."""
        spans = self._exporter.get_finished_spans()
        self._exporter.clear()
        return spans

    def tree(self) -> list[str]:
        """Take the spans; return the name of each, indented by two spaces below that of its parent.

        The spans of requests are left out. Those with one parent are in the order of their beginnings.
        """
        spans = [span for span in self.take() if span.kind is SpanKind.INTERNAL]
        known = {span.context.span_id for span in spans}

        def below(parent: int | None) -> Iterator[str]:
            for span in sorted(spans, key=lambda span: span.start_time):
                above = span.parent.span_id if span.parent and span.parent.span_id in known else None
                if above == parent:
                    yield span.name
                    yield from (f"  {line}" for line in below(span.context.span_id))

        return list(below(None))


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the spans of this process for a while: a provider that is set could not be taken back."""
    made = Recording()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer_provider", lambda: made.provider)
        yield made
    made.provider.shutdown()
