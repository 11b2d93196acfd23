"""Spans of operations: their tree, their outcomes, and none without a provider."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.trace import NoOpTracerProvider, StatusCode

from commitlog._util.concurrency import in_order, work, work_in_groups
from commitlog._util.request_stats import RequestRecorder, report_retry
from commitlog._util.tracing import begin_span, traced
from commitlog.errors import CommitError, Committed, Conflict, OutcomeUnknown
from support.tracing import Recording, recorded


@pytest.fixture
def recording() -> Iterator[Recording]:
    """The spans of the test."""
    with recorded() as spans:
        yield spans


@traced(lambda shop, arguments: {"commitlog.path": arguments.get("path")}, without=("label",))
class _Shop:
    """Operations that call each other, and those of another shop."""

    def __init__(self, other: _Shop | None = None) -> None:
        self.other = other

    def label(self, path: str) -> str:
        return path

    def get(self, path: str = "a", *, error: BaseException | None = None) -> str:
        if error is not None:
            raise error
        return self.label(path)

    def both(self) -> list[str]:
        assert self.other is not None
        return [self.get(), self.other.get("b")]

    def each(self, count: int) -> Iterator[int]:
        for number in range(count):
            report_retry(Conflict("busy"))
            yield number

    def lines(self) -> Iterator[int]:
        return self.each(2)

    def close(self) -> None:
        pass


def test_a_call_records_a_span(recording: Recording) -> None:
    """Its name is that of the method. Its attributes come from positional and named arguments."""
    shop = _Shop()
    assert shop.get("x") == shop.get(path="x") == "x"
    for span in recording.take():
        assert span.name == "_Shop.get"
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.name == "commitlog"
        assert dict(span.attributes or {}) == {"commitlog.path": "x", "commitlog.outcome": "success"}
        assert span.status.status_code is StatusCode.UNSET


def test_an_argument_of_another_type_is_no_attribute(recording: Recording) -> None:
    """The API would log a warning."""
    _Shop().get(Path("x"))  # type: ignore[arg-type]
    (span,) = recording.take()
    assert dict(span.attributes or {}) == {"commitlog.outcome": "success"}


def test_calls_of_the_same_object_are_one_operation(recording: Recording) -> None:
    """A call inside an operation of its object records no span; one of another object does."""
    shop = _Shop(_Shop())
    shop.label("a")
    shop.close()
    assert shop.both() == ["a", "b"]
    assert recording.tree() == ["_Shop.both", "  _Shop.get"]


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (Conflict("busy; nothing was written"), "failure", "busy; nothing was written"),
        (OutcomeUnknown("lost"), "unknown", "lost"),
        (Committed("not visible yet"), "committed", "not visible yet"),
        (ValueError("password"), "unknown", None),
        (KeyboardInterrupt(), "unknown", None),
    ],
    ids=repr,
)
def test_an_error_is_recorded(
    recording: Recording,
    error: BaseException,
    outcome: str,
    message: str | None,
) -> None:
    """The outcome is the one of the error tree. The text of a foreign exception is left out."""
    with pytest.raises(type(error)) as caught:
        _Shop().get(error=error)
    assert caught.value is error
    (span,) = recording.take()
    kind = type(error).__name__
    kind = f"commitlog.errors.{kind}" if isinstance(error, CommitError) else kind
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, message)
    assert span.attributes is not None
    assert (span.attributes["error.type"], span.attributes["commitlog.outcome"]) == (kind, outcome)
    (event,) = span.events
    expected = {"exception.type": kind, "exception.message": message}
    assert event.name == "exception"
    assert dict(event.attributes or {}) == {k: v for k, v in expected.items() if v is not None}


def test_the_span_of_an_iterator_ends_with_it(recording: Recording) -> None:
    """It ends at the last item, when the iterator is closed, or when it is dropped."""
    shop = _Shop()
    for items in (shop.each(2), shop.lines()):
        assert next(items) == 0
        assert recording.take() == ()
        assert trace.get_current_span() is trace.INVALID_SPAN
        shop.get()  # of the consumer, and not of the iteration
        assert list(items) == [1]
        inner, outer = recording.take()
        assert inner.parent is None
        assert [event.name for event in outer.events] == ["commitlog.retry"] * 2
    with closing(shop.each(2)) as items:  # type: ignore[type-var]
        next(items)
    shop.each(2)
    assert [span.name for span in recording.take()] == ["_Shop.each"] * 2


def test_an_iterator_records_its_error(recording: Recording) -> None:
    """An error of a later item ends the span."""
    with pytest.raises(TypeError):
        list(_Shop().each("x"))  # type: ignore[arg-type]
    (span,) = recording.take()
    assert span.status.status_code is StatusCode.ERROR


def test_spans_of_threads_are_below_their_operation(recording: Recording) -> None:
    """All ways to work in parallel take the current span to the threads."""
    shop, paths = _Shop(), ["a", "b", "c"]
    settled: list[str] = []
    with ThreadPoolExecutor(2) as threads, ThreadPoolExecutor(1) as joiner:
        ways = {
            "work": lambda: work(
                paths, shop.get, lambda path, _: settled.append(path), executor=threads, ahead=2
            ),
            "in_order": lambda: list(
                in_order(paths, shop.get, open_executor=lambda: ThreadPoolExecutor(2), ahead=2)
            ),
            "work_in_groups": lambda: work_in_groups(
                paths,
                lambda path: path,
                lambda group: [shop.get(path) for path, _ in group],
                lambda path, _: settled.append(path),
                executor=threads,
                joiner=joiner,
                ahead=2,
                most=2,
            ),
            "map": lambda: list(RequestRecorder().bind(threads).map(shop.get, paths)),
            "submit": lambda: [
                future.result()
                for future in [RequestRecorder().bind(threads).submit(shop.get, path) for path in paths]
            ],
        }
        for name, way in ways.items():
            span = begin_span(name)
            assert span is not None
            span.run(way)
            span.end()
            assert recording.tree() == [name, *["  _Shop.get"] * 3]


def test_a_dropped_span_ends(recording: Recording) -> None:
    """A request whose response nobody reads has a span, too."""
    begin_span("GET", is_request=True)
    assert [span.name for span in recording.take()] == ["GET"]


def test_the_context_of_another_process_is_the_parent(recording: Recording) -> None:
    """It is used unless there is a current span."""
    carrier = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    outer = begin_span("outer", carrier=carrier)
    assert outer is not None
    outer.run(lambda: begin_span("inner", carrier=carrier))
    outer.end()
    inner, ended = recording.take()
    assert ended.parent is not None
    assert inner.parent is not None
    assert f"{ended.parent.trace_id:x}" == "af7651916cd43dd8448eb211c80319c"
    assert ended.parent.is_remote
    assert inner.parent.span_id == ended.context.span_id


def test_nothing_is_recorded_without_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a provider, or with one that records nothing, calls run as they are."""
    calls = []

    def describe(shop: object, arguments: object) -> dict[str, str]:
        calls.append(arguments)
        return {}

    decorated = traced(describe)(type("Other", (), {"get": lambda self: trace.get_current_span()}))
    assert decorated().get() is trace.INVALID_SPAN  # type: ignore[attr-defined]
    assert not calls
    monkeypatch.setattr(trace, "get_tracer_provider", NoOpTracerProvider)
    assert decorated().get() is trace.INVALID_SPAN  # type: ignore[attr-defined]


@pytest.mark.parametrize("setting", ["", "sys.modules['opentelemetry'] = None; "], ids=["", "missing"])
def test_operations_do_not_import_the_api(setting: str) -> None:
    """A program that does not import the API runs without it, whether it is installed or not."""
    code = (
        f"import sys; {setting}import commitlog; store = commitlog.connect('memory://'); "
        "store.put_if_absent('a', b'1'); print(store.get('a').data, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    data, *loaded = done.stdout.split()
    assert data == "b'1'"
    assert "commitlog._util.tracing" in loaded
    assert not [name for name in loaded if name.startswith("opentelemetry.")]
