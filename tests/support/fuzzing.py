"""Helpers of the fuzz tests: hostile values, damage to stored data, and the allowed results.

Every property runs with a few fixed examples in the default run, and with new examples for a given time
in a campaign (`pytest -m campaign`).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from support import selection

T = TypeVar("T")

#: Seconds within which any input must be parsed. It is far more than needed; a hang takes longer.
PATIENCE = 60.0

#: Placeholders for values that `json.dumps` cannot write, or only with a huge size.
DIGITS = "@digits@"
DEEP = "@deep@"
BOTTOMLESS = "@bottomless@"


# -- properties --------------------------------------------------------------------------------------

_SETTINGS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


class Properties:
    """The properties of one test file, for the default run and for the campaign."""

    def __init__(self) -> None:
        self._all: list[tuple[Callable[..., None], Mapping[str, st.SearchStrategy[Any]]]] = []

    def __call__(
        self, examples: int, **strategies: st.SearchStrategy[Any]
    ) -> Callable[[Callable[..., None]], Callable[[], None]]:
        """Return a decorator that makes a test of a check.

        It takes `examples` examples from `strategies`, or a third of them without ``--all``, the same in
        every run.
        """

        def decorate(check: Callable[..., None]) -> Callable[[], None]:
            self._all.append((check, strategies))
            number = selection.examples(-(-examples // 3), examples)
            fixed = settings(max_examples=number, derandomize=True, **_SETTINGS)
            test: Callable[[], None] = fixed(given(**strategies)(check))
            return test

        return decorate

    def campaign(self, seconds: float, number: int, **fixtures: Any) -> int:
        """Run all properties in turn for about `seconds`; return the number of examples.

        Args:
            seconds: time limit; each property has at least one turn.
            number: seed of the first turn; each later turn has the next number.
            fixtures: arguments of checks that strategies do not provide.
        """
        end = time.monotonic() + seconds
        tried = 0
        turn = 0

        def counted(check: Callable[..., None]) -> Callable[..., None]:
            def count(**values: Any) -> None:
                nonlocal tried
                tried += 1
                wanted = inspect.signature(check).parameters.keys() & fixtures.keys()
                check(**values, **{name: fixtures[name] for name in wanted})

            count.__name__ = f"{check.__name__}_with_campaign_seed_{number + turn}"
            return count

        while not turn or time.monotonic() < end:
            for check, strategies in self._all:
                free = settings(max_examples=300, print_blob=True, **_SETTINGS)
                seed(number + turn)(free(given(**strategies)(counted(check))))()
            turn += 1
        return tried


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty directory, in memory if possible, because fsync is not under test here."""
    memory = "/dev/shm"
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory)


def outcome(call: Callable[[], T], *errors: type[Exception]) -> T | Exception:
    """Return the result of `call`, or the error that it raises, which must be one of `errors`.

    Any other error passes through and fails the test, and so does a call that takes too long.
    """
    begun = time.monotonic()
    result: T | Exception
    try:
        result = call()
    except errors as error:
        result = error
    spent = time.monotonic() - begun
    assert spent < PATIENCE, f"it took {spent:.1f} s"
    return result


# -- a server ----------------------------------------------------------------------------------------

ENOUGH = 60


class Canned:
    """A server on loopback that answers with given bytes, and then hangs up.

    It sends `answers` in turn, and repeats the last one. After `ENOUGH` requests it refuses all, so that
    `served` reveals a client that never stops.
    """

    REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port: int = self._listener.getsockname()[1]
        self.answers: Sequence[bytes] = ()
        self.served = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends an accept() that waits
        self._thread.join()
        self._listener.close()

    def give(self, *answers: bytes) -> None:
        """Set the answers of the next requests."""
        self.answers = answers
        self.served = 0

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(30)
                if _read_request(connection):
                    answer = self.answers[min(self.served, len(self.answers) - 1)]
                    self.served += 1
                    connection.sendall(self.REFUSAL if self.served > ENOUGH else answer)
                    connection.shutdown(socket.SHUT_WR)


def _read_request(connection: socket.socket) -> bool:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return False
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    left = int(found[1]) - len(body) if found else 0
    while left > 0 and (piece := connection.recv(65_536)):
        left -= len(piece)
    return True


def http(body: bytes = b"", status: object = "200 OK", **headers: object) -> bytes:
    """Return a response; names of headers have underscores for hyphens."""
    declared = {"content_length": len(body), **headers}
    lines = [
        f"{name.replace('_', '-')}: {value}" for name, value in declared.items() if value is not None
    ]
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""])
    return head.encode("utf-8", errors="surrogatepass") + body


# -- values ------------------------------------------------------------------------------------------

WILD_TEXTS = (
    "",
    " ",
    "/",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a//b",
    "a/../b",
    "a\0b",
    "a\nb",
    "\x1b[2J",
    "\ud800",
    "\udfff\ud800",
    "\ufeff",
    "x" * 1025,
    "٣",
    "²",
    "1_000",
    "+1",
    " 1",
    "-1",
    "0x10",
    "1e5",
    "nan",
    "Infinity",
    "true",
    "null",
    "{}",
    "[]",
    DIGITS,
    DEEP,
    BOTTOMLESS,
)
WILD_NUMBERS = (
    *(-(10**400), -1, 0, 1, 7, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64),
    *(10**20, 10**38 - 1, 10**38, 10**400),
    *(0.5, -0.0, 1e17, 1e308, -1e308, math.nan, math.inf, -math.inf),
)
#: Values that may confuse a parser.
HOSTILE: tuple[Any, ...] = (
    *(None, True, False),
    *WILD_TEXTS,
    *WILD_NUMBERS,
    *([], {}, [[]], [{}], [None], [1], ["ab"], [["a"]], [["a", "b", "c"]], [["a", 1]], [[1, "a"]]),
    *([["a", "b"], ["a", "c"]], {"a": 1}, {"ab": "cd"}, {"": None}),
)

#: Text that is valid Unicode.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
#: Text that no careful writer produces.
wild_texts = st.text(max_size=12) | st.sampled_from(WILD_TEXTS)
#: Numbers up to and beyond the limits of all fields.
wild_numbers = st.integers() | st.floats() | st.sampled_from(WILD_NUMBERS)
wild_scalars = st.none() | st.booleans() | wild_numbers | wild_texts
#: JSON values, and others that Python accepts as JSON: NaN, infinity, lone surrogates.
wild_json = st.sampled_from(HOSTILE) | st.recursive(
    wild_scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["format", "kind", "checksum", "a", "time"]) | wild_texts, inner, max_size=4
        )
    ),
    max_leaves=8,
)


def dumps(value: Any) -> str:
    """Return `value` as JSON text, or similar text, with the placeholders replaced."""
    text = json.dumps(value, ensure_ascii=True)
    if "@" not in text:
        return text
    return (
        text.replace(f'"{DIGITS}"', "1" * 5_000)
        .replace(f'"{DEEP}"', "[" * 600 + "]" * 600)
        .replace(f'"{BOTTOMLESS}"', '[{"a":' * 50_000 + "1" + "}]" * 50_000)
    )


def sealed(kind: object, body: Mapping[str, Any], format: object = 1) -> bytes:
    """Return a record with this body and a correct checksum, if the body has one.

    This code is independent of `commitlog.oplog.codec`, and accepts bodies that the codec refuses.
    """
    fields = {**body, "kind": kind, "format": format}
    try:
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        checksum = hashlib.sha256(text.encode()).hexdigest()
    except (TypeError, ValueError):
        checksum = ""
    return dumps({**fields, "checksum": checksum}).encode()


# -- damage ------------------------------------------------------------------------------------------


def replaced(document: Any, values: Iterable[Any] = HOSTILE) -> Iterator[Any]:
    """Yield the JSON value `document` with each part of it removed, or replaced by each of `values`."""
    yield from values
    if isinstance(document, dict):
        for name, part in document.items():
            yield {key: each for key, each in document.items() if key != name}
            for damaged in replaced(part, values):
                yield {**document, name: damaged}
    elif isinstance(document, list):
        for at, part in enumerate(document):
            yield document[:at] + document[at + 1 :]
            for damaged in replaced(part, values):
                yield [*document[:at], damaged, *document[at + 1 :]]


def says(stored: Any, read: Any) -> bool:
    """Return whether `stored` contains everything that was `read`; it may contain more."""
    if isinstance(read, dict):
        return isinstance(stored, dict) and all(
            name in stored and says(stored[name], value) for name, value in read.items()
        )
    if isinstance(read, (list, tuple)):
        return isinstance(stored, list) and len(stored) == len(read) and all(map(says, stored, read))
    if isinstance(read, float):  # JSON does not distinguish 1 and 1.0
        return type(stored) in (int, float) and float(stored) == read
    return type(stored) is type(read) and stored == read


@st.composite
def damaged_json(draw: st.DrawFn, document: Any, hostile: st.SearchStrategy[Any] = wild_json) -> Any:
    """Return `document`, a JSON value, with one to three of its parts replaced, removed or added."""
    damaged = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        damaged = _damage(draw, damaged, hostile)
    return damaged


def _damage(draw: st.DrawFn, value: Any, hostile: st.SearchStrategy[Any]) -> Any:
    """Descend a random path, and change the value there."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(sorted(value)))
        match draw(st.sampled_from(["deeper", "deeper", "remove", "add", "rename"])):
            case "deeper":
                return {**value, name: _damage(draw, value[name], hostile)}
            case "remove":
                return {key: each for key, each in value.items() if key != name}
            case "rename":
                rest = {key: each for key, each in value.items() if key != name}
                return {**rest, draw(wild_texts): value[name]}
            case _:
                return {**value, draw(texts): draw(hostile)}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        at = draw(st.integers(0, len(value) - 1))
        match draw(st.sampled_from(["deeper", "deeper", "remove", "repeat", "add"])):
            case "deeper":
                return [*value[:at], _damage(draw, value[at], hostile), *value[at + 1 :]]
            case "remove":
                return value[:at] + value[at + 1 :]
            case "repeat":
                return [*value, value[at]]
            case _:
                return [*value[:at], draw(hostile), *value[at:]]
    return draw(hostile)


@st.composite
def damaged_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Return `data` truncated, overwritten, shifted, doubled or encoded differently."""
    at = draw(st.integers(0, max(0, len(data) - 1)))
    length = draw(st.integers(0, 40))
    match draw(
        st.sampled_from(
            ["cut", "cut", "flip", "flip", "overwrite", "remove", "insert", "repeat", "zero", "recode"]
        )
    ):
        case "cut":
            return data[:at]
        case "flip":
            flipped = bytearray(data)
            if flipped:
                flipped[at] ^= 1 << draw(st.integers(0, 7))
            return bytes(flipped)
        case "overwrite":
            return data[:at] + draw(st.binary(min_size=1, max_size=40)) + data[at + length :]
        case "remove":
            return data[:at] + data[at + max(1, length) :]
        case "insert":
            return data[:at] + draw(st.binary(min_size=1, max_size=40)) + data[at:]
        case "repeat":
            return data[: at + length] + data[at:]
        case "zero":
            return data[:at] + bytes(len(data) - at)
        case _:
            text = data.decode("utf-8", errors="replace")
            return text.encode(draw(st.sampled_from(["utf-8-sig", "utf-16", "utf-32", "utf-7"])))
