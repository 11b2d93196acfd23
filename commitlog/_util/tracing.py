"""OpenTelemetry spans around operations and requests.

`traced` makes the public methods of a class record a span for each call. `begin_span` begins one by
hand. `carried` takes the current span along to another thread.

Spans are recorded if the application has set a tracer provider. To set one, it has to import
``opentelemetry.trace``. So this module imports that only if it is imported already, and without tracing
an operation costs one lookup in ``sys.modules``.

The attributes are those of the OpenTelemetry semantic conventions, and ``commitlog.*`` for the rest. So
is the status: unset after success, as https://opentelemetry.io/docs/specs/semconv/general/recording-errors/
requires. No attribute and no event holds a header, a query of a request, or the text of an exception
other than `CommitError`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from inspect import isfunction, unwrap
from types import GeneratorType, MappingProxyType
from typing import Any, Final, Literal, ParamSpec, TypeAlias, TypeVar, cast

from commitlog.errors import CommitError, Committed, OutcomeUnknown

__all__ = [
    "Attributes",
    "Describe",
    "OpenSpan",
    "Outcome",
    "begin_span",
    "carried",
    "record_retry",
    "traced",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: The attributes of a span by name. Those that are not texts or numbers are left out, such as None.
Attributes: TypeAlias = Mapping[str, object]

#: Returns the attributes of a call from the object and from the arguments by their names.
Describe: TypeAlias = Callable[[Any, Mapping[str, Any]], Attributes]

#: The outcome of an operation: it happened, nothing happened, it happened and work is left, or it may
#: have happened.
Outcome: TypeAlias = Literal["success", "failure", "committed", "unknown"]

_MODULES: Final = sys.modules
_TRACE: Final = "opentelemetry.trace"
_EMPTY: Attributes = MappingProxyType({})
_END: Any = object()

#: The object whose operation is in progress in this thread or task.
_owner: ContextVar[object] = ContextVar("commitlog._util.tracing.owner", default=None)

#: The module of the API, once it was seen.
_trace: Any = None

#: The tracer, and the provider that it is from.
_cached: tuple[Any, Any] = (None, None)


def _tracer() -> Any:
    """Return the tracer of this library, or None if the application has set no provider."""
    global _trace, _cached
    if _trace is None:
        if _MODULES.get(_TRACE) is None:
            return None
        from opentelemetry import trace  # waits for another thread that is importing it

        _trace = trace
    provider = _trace.get_tracer_provider()
    if isinstance(provider, _trace.ProxyTracerProvider):
        return None
    cached = _cached
    if cached[0] is not provider:
        cached = _cached = (provider, provider.get_tracer("commitlog", _version()))
    return cached[1]


def _version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("commitlog-store")
    except PackageNotFoundError:  # a checkout that is not installed
        return None


class OpenSpan:
    """A span that has begun. It ends with `end` or `fail`, or when nothing refers to it any more.

    `begin_span` makes them. Any thread may use it, one at a time.
    """

    __slots__ = ("_context", "_ended", "_is_request", "_owner", "_span")

    def __init__(self, span: Any, *, is_request: bool, owner: object) -> None:
        from opentelemetry import trace

        self._span = span
        self._context = trace.set_span_in_context(span)
        self._is_request = is_request
        self._owner = owner
        self._ended = False

    def run(self, call: Callable[[], R]) -> R:
        """Return the result of `call`. Spans that it begins are below this one."""
        return _run_in(self._context, self._owner, call)

    def rename(self, name: str) -> None:
        """Replace the name."""
        self._span.update_name(name)

    def set(self, attributes: Attributes) -> None:
        """Set attributes."""
        self._span.set_attributes(_present(attributes))

    def end(self, error: BaseException | None = None, *, outcome: Outcome | None = None) -> None:
        """End the span; with `error` as failed, or as unknown if the change may have happened.

        The message of a `CommitError` is recorded, because it holds no secret. The text of any other
        exception is not.

        Args:
            error: the error of the operation.
            outcome: the outcome, if the class of the error does not show it.
        """
        if error is None:
            self._end("success")
            return
        known = isinstance(error, CommitError)
        kind = _name(type(error))
        message = str(error) if known else None
        if not self._ended:
            event = {"exception.type": kind, "exception.message": message}
            self._span.add_event("exception", _present(event))
        if outcome is None:  # the error tree says what did not happen; no other exception does
            outcome = _outcome_of(error)
        self.fail(kind, outcome, message)

    def fail(self, kind: str, outcome: Outcome = "failure", message: str | None = None) -> None:
        """End the span as failed.

        Args:
            kind: the attribute ``error.type``: the class of an error, or a status.
            outcome: the attribute ``commitlog.outcome``, which the span of a request does not have.
            message: what went wrong.
        """
        from opentelemetry.trace import Status, StatusCode

        if not self._ended:
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, message))
        self._end(outcome)

    def _end(self, outcome: Outcome) -> None:
        if self._ended:
            return
        self._ended = True
        if not self._is_request:
            self._span.set_attribute("commitlog.outcome", outcome)
        self._span.end()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            self._ended = True
            self._span.end()


def begin_span(
    name: str,
    attributes: Attributes = _EMPTY,
    *,
    is_request: bool = False,
    carrier: Mapping[str, str] | None = None,
    owner: object = None,
) -> OpenSpan | None:
    """Begin a span below the current one; return None if no spans are recorded.

    Args:
        name: the name of the operation, without anything that differs between its calls.
        attributes: the attributes.
        is_request: whether the span is the client's side of a request.
        carrier: the context of another process in the format of the application's propagator, such as
            ``traceparent``. It is used if there is no current span.
        owner: the object whose operation it is; see `traced`.

    >>> begin_span("ConditionalStore.put") is None
    True
    """
    tracer = _tracer()
    if tracer is None:
        return None
    from opentelemetry import propagate, trace

    context = None
    if carrier and not trace.get_current_span().get_span_context().is_valid:
        context = propagate.extract(carrier)
    span = tracer.start_span(
        name,
        context=context,
        kind=trace.SpanKind.CLIENT if is_request else trace.SpanKind.INTERNAL,
        attributes=_present(attributes),
    )
    if not span.get_span_context().is_valid:  # of a provider that records nothing
        return None
    return OpenSpan(span, is_request=is_request, owner=owner)


def record_retry(cause: Exception) -> None:
    """Add an event to the current span, if there is one: a request is about to be retried."""
    if _tracer() is not None:
        _trace.get_current_span().add_event("commitlog.retry", {"error.type": _name(type(cause))})


def carried(call: Callable[P, R]) -> Callable[P, R]:
    """Return a function for another thread: spans that `call` begins are below the current one.

    >>> carried(len) is len  # nothing is recorded
    True
    """
    if _tracer() is None:
        return call
    from opentelemetry import context

    current, owner = context.get_current(), _owner.get()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return _run_in(current, owner, lambda: call(*args, **kwargs))

    return run


def traced(describe: Describe, *, without: Collection[str] = ()) -> Callable[[type[T]], type[T]]:
    """Return a decorator for a class, whose public methods then record a span for each call.

    A call inside another operation of the same object records none, so that the spans are those of the
    operations that the caller asked for. The span of a method that returns an iterator ends with the
    iteration. The name of a span is that of the class and the method.

    Args:
        describe: returns the attributes of a call; only called if spans are recorded.
        without: the names of methods that record no span, as those that send no request. `close` never
            does.

    >>> @traced(lambda account, arguments: {"commitlog.path": arguments["path"]})
    ... class Account:
    ...     def read(self, path: str) -> str:
    ...         return path
    >>> Account().read("a")
    'a'
    """

    def decorate(cls: type[T]) -> type[T]:
        for name, value in list(vars(cls).items()):
            if isfunction(value) and not name.startswith("_") and name not in ("close", *without):
                setattr(cls, name, _traced(value, f"{cls.__name__}.{name}", describe))
        return cls

    return decorate


def _traced(method: Callable[..., Any], name: str, describe: Describe) -> Callable[..., Any]:
    code = unwrap(method).__code__
    names = code.co_varnames[1 : code.co_argcount]  # without `self`

    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The first condition, which is a part of the second, is what a call costs without tracing.
        if _TRACE not in _MODULES or _tracer() is None or _owner.get() is self:
            return method(self, *args, **kwargs)
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        span = begin_span(name, describe(self, arguments), owner=self)
        if span is None:
            return method(self, *args, **kwargs)
        try:
            result = span.run(lambda: method(self, *args, **kwargs))
        except BaseException as error:
            span.end(error)
            raise
        if isinstance(result, (GeneratorType, _TracedIterator)):
            return _TracedIterator(result, span)
        span.end()
        return result

    return run


class _TracedIterator(Iterator[T]):
    """An iterator that runs in a span, which ends with it."""

    def __init__(self, items: Iterator[T], span: OpenSpan) -> None:
        self._items = items
        self._span = span

    def __next__(self) -> T:
        try:
            item = self._span.run(lambda: next(self._items, _END))
        except BaseException as error:
            self._span.end(error)
            raise
        if item is _END:
            self._span.end()
            raise StopIteration
        return cast(T, item)

    def close(self) -> None:
        """Close the inner iterator, as of a generator."""
        self._span.run(cast(Any, self._items).close)
        self._span.end()

    def __del__(self) -> None:
        self._span.end()  # the consumer needed no more


def _run_in(context: Any, owner: object, call: Callable[[], R]) -> R:
    from opentelemetry.context import attach, detach

    token = attach(context)
    restored = _owner.set(owner)
    try:
        return call()
    finally:
        _owner.reset(restored)
        detach(token)


def _present(attributes: Attributes) -> dict[str, str | int | float]:
    return {name: value for name, value in attributes.items() if isinstance(value, (str, int, float))}


def _name(kind: type) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__


def _outcome_of(error: BaseException) -> Outcome:
    """Return what the class of an error says about the operation that raised it."""
    match error:
        case Committed():
            return "committed"
        case OutcomeUnknown():
            return "unknown"
        case CommitError():
            return "failure"
    return "unknown"
