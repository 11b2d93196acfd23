"""Calls that are repeated in the background."""

from __future__ import annotations

import threading

from commitlog._util.background import Foreground, Threads


def test_a_call_is_repeated_until_it_returns_false() -> None:
    """The thread ends by itself then, and stopping it is no error."""
    calls: list[int] = []
    ended = threading.Event()

    def call() -> bool:
        calls.append(len(calls))
        if len(calls) == 3:
            ended.set()
        return len(calls) < 3

    stop = Threads("test").repeat(0.001, call)
    assert ended.wait(60)
    stop()
    assert calls == [0, 1, 2]


def test_stopping_waits_for_a_call_that_runs() -> None:
    """Within the call itself it does not wait."""
    ready, begun, finished = threading.Event(), threading.Event(), threading.Event()
    stops = []

    def call() -> bool:
        assert ready.wait(60)
        begun.set()
        stops[0]()  # would wait for ever
        finished.set()
        return True

    stops.append(Threads("test").repeat(0.001, call))
    ready.set()
    assert begun.wait(60)
    stops[0]()
    assert finished.is_set()


def test_each_thread_is_another_caller() -> None:
    """A mutex excludes other threads."""
    background = Threads("test")
    callers = [background.caller()]
    thread = threading.Thread(target=lambda: callers.append(background.caller()))
    thread.start()
    thread.join()
    assert len(set(callers)) == 2
    mutex = background.mutex()
    with mutex:
        other = threading.Thread(target=lambda: callers.append(mutex.__enter__()), daemon=True)
        other.start()
        assert other.is_alive()
    other.join()


def test_the_foreground_repeats_nothing() -> None:
    """It is one caller, and excludes nobody."""
    background = Foreground()
    background.repeat(0.0, lambda: 1 / 0 > 0)()
    assert background.caller() == background.caller()
    with background.mutex():
        pass
