"""The transfer engine: parallel work that can be cancelled, content of new files, and their creation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from commitlog import connect, transfer
from commitlog._util.concurrency import Executor
from commitlog.errors import (
    AlreadyExists,
    IsADirectory,
    NotADirectory,
    ObjectChanged,
    PreconditionFailed,
)
from commitlog.namespace import Data, FileWriter, Namespace, Status
from commitlog.namespaces import create_namespace
from commitlog.transfer import (
    Cancelled,
    ContentWriter,
    NamespacePath,
    OpenSource,
    StoredContent,
    Transfer,
    drop_files,
    link_files,
    read_blocks,
    read_first_block,
    read_slice,
    sequential_reader,
)
from support.namespace import objects_in


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace in memory."""
    url = f"memory://{request.node.name}"
    with create_namespace("lake", store=url, metadata=url, log=False) as created:
        yield created


@pytest.fixture
def executor() -> Iterator[Executor]:
    """An executor with a few threads."""
    with ThreadPoolExecutor(2) as threads:
        yield threads


def at(namespace: Namespace, path: str) -> NamespacePath:
    """Return a path of the namespace."""
    return NamespacePath(namespace=namespace, path=path)


# -- versions of content -------------------------------------------------------------------------------


READS: dict[str, Callable[[OpenSource], bytes]] = {
    "all": lambda source: source.read(),
    "the first bytes": lambda source: source.read(0, 3),
    "later bytes": lambda source: source.read(3, 6),
    "blocks": lambda source: b"".join(read_blocks(source, 4)),
    "a slice": lambda source: read_slice(source, None, None),
    "ranges": lambda source: sequential_reader(source, 4).read(0, 3),
}


@pytest.mark.parametrize("how", READS)
def test_no_byte_is_of_another_version(namespace: Namespace, how: str) -> None:
    """Also the first block of a read is compared; the new content has the same size."""
    path = namespace.write("a", b"first one").data.path
    with connect(f"memory://{namespace.name}-objects") as store:
        store.put("b", b"first one")
        opened, first = read_first_block(store, "b")
        assert first == b"first one"
        store.put("b", b"the other")
        namespace.store.put(path, b"the other")
        for source, error in ((opened, PreconditionFailed), (namespace.open("a"), ObjectChanged)):
            with pytest.raises(error, match="replaced"):
                READS[how](source)


# -- parallel work --------------------------------------------------------------------------------------


def test_each_outcome_is_reported() -> None:
    """Both a result and an error are outcomes of an item."""

    def invert(number: int) -> float:
        return 1 / number

    outcomes: dict[int, Any] = {}
    Transfer(3).run([1, 0, 2], invert, outcomes.__setitem__)
    assert (outcomes[1], outcomes[2]) == (1, 0.5)
    assert isinstance(outcomes[0], ZeroDivisionError)


def test_no_item_is_started_after_a_cancellation() -> None:
    """The items in progress end at their next check. They have no outcome."""
    work = Transfer(2)
    started: list[int] = []
    settled: list[int] = []

    def run(number: int) -> None:
        started.append(number)
        if number == 0:
            return
        while True:
            work.check()

    def settle(number: int, outcome: object) -> None:
        settled.append(number)
        work.cancel()

    work.run(range(1000), run, settle)
    assert settled == [0]
    assert len(started) <= 4


def test_items_are_taken_when_there_is_room() -> None:
    """A long listing is not read ahead of the work."""
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    def settle(number: int, outcome: object) -> None:
        assert taken <= number + 1 + 2 * 2

    Transfer(2).run(items(), lambda number: number, settle)
    assert taken == 100


def test_results_are_joined_in_groups() -> None:
    """Results that are ready are joined with one call, which returns the outcome of each."""
    groups: list[int] = []
    outcomes: dict[int, Any] = {}

    def join(group: Sequence[tuple[int, str]], executor: Executor) -> list[str | Exception]:
        groups.append(len(group))
        return [text if number else KeyError(text) for number, text in group]

    Transfer(4).run_in_groups(range(50), str, join, outcomes.__setitem__, drop=lambda left: None)
    assert sum(groups) == 50
    assert [outcomes[number] for number in range(1, 50)] == [str(number) for number in range(1, 50)]
    assert isinstance(outcomes[0], KeyError)


def test_results_that_are_not_joined_are_dropped() -> None:
    """After an interrupt, each result was joined or dropped."""
    joined: list[int] = []
    dropped: list[int] = []
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    def join(group: Sequence[tuple[int, int]], executor: Executor) -> list[int]:
        joined.extend(part for _, part in group)
        return [part for _, part in group]

    def settle(number: int, outcome: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Transfer(2).run_in_groups(range(1000), make, join, settle, drop=dropped.extend)
    assert sorted(joined + dropped) == sorted(made)


# -- content --------------------------------------------------------------------------------------------


def test_small_content_takes_one_request(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """One short block is uploaded without a check. Several blocks are written to a checked path."""
    opened: list[str] = []
    real = Namespace.open_writer

    def open_writer(self: Namespace, path: str, **options: Any) -> FileWriter:
        opened.append(path)
        return real(self, path, **options)

    monkeypatch.setattr(Namespace, "open_writer", open_writer)
    writer = ContentWriter(block_size=4)
    steps: list[int] = []
    for blocks in ([], [b"abc"], [b"abc", b"d"], [b"abcd"], [b"abcd", b"ef"]):
        path = f"{len(blocks)}/{len(steps)}"
        data = writer.write(at(namespace, path), blocks, steps.append)
        namespace.link(path, data)
        assert namespace.read(path) == b"".join(blocks)
    assert len(opened) == 3
    assert sum(steps) == 17


def test_content_can_be_checked_before_it_is_read(namespace: Namespace) -> None:
    """With `check`, no block is read if the file cannot be made."""
    namespace.write("f", b"1")

    def blocks() -> Iterator[bytes]:
        pytest.fail("a block was read")
        yield b""

    with pytest.raises(AlreadyExists):
        ContentWriter().write(at(namespace, "f"), blocks(), overwrite=False, check=True)
    with pytest.raises(IsADirectory):
        ContentWriter().write(at(namespace, ""), blocks(), check=True)


@pytest.mark.parametrize("first", [b"1", b"123"])
def test_a_cancelled_upload_leaves_no_content(namespace: Namespace, first: bytes) -> None:
    """An exception of `advance` ends the upload of a small and of a large file."""
    before = objects_in(namespace.store)

    def advance(step: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        ContentWriter(block_size=2).write(at(namespace, "f"), [first], advance)
    assert objects_in(namespace.store) == before


def test_few_large_files_are_written_at_a_time(namespace: Namespace) -> None:
    """Small files do not wait for large ones."""
    writer = ContentWriter(block_size=2)
    lock = threading.Lock()
    small_done = threading.Event()
    large = most = 0

    def blocks() -> Iterator[bytes]:
        nonlocal large, most
        yield b"12"
        with lock:
            large += 1
            most = max(most, large)
        assert small_done.wait(30)
        with lock:
            large -= 1

    threads = [
        threading.Thread(target=writer.write, args=(at(namespace, f"{number}"), blocks()))
        for number in range(12)
    ]
    for thread in threads:
        thread.start()
    writer.write(at(namespace, "small"), [b"1"])
    small_done.set()
    for thread in threads:
        thread.join(30)
    assert 1 <= most <= 4


def test_the_store_copies_within_a_namespace(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger files and files of other namespaces are read in blocks and written."""
    namespace.write("f", b"0123456789")
    source = namespace.open("f")
    steps: list[int] = []
    writer = ContentWriter(block_size=4)
    copied = writer.copy(at(namespace, "a"), source, namespace, steps.append)
    assert steps == [10]
    monkeypatch.setattr(transfer, "COPY_LIMIT", 9)
    written = writer.copy(at(namespace, "b"), source, namespace, steps.append)
    assert steps == [10, 4, 4, 2]
    namespace.link("a", copied)
    namespace.link("b", written)
    assert namespace.read("a") == namespace.read("b") == b"0123456789"


def test_blocks_of_a_file(namespace: Namespace) -> None:
    """The blocks of a whole file, and of a part of it."""
    namespace.write("f", b"0123456789")
    opened = namespace.open("f")
    assert list(read_blocks(opened, 4)) == [b"0123", b"4567", b"89"]
    assert list(read_blocks(opened, 4, start=3, end=8)) == [b"3456", b"7"]
    assert list(read_blocks(opened, start=10)) == []


# -- new files ------------------------------------------------------------------------------------------


def store(namespace: Namespace, path: str) -> StoredContent:
    """Store content for a file."""
    return StoredContent(at(namespace, path), ContentWriter().write(at(namespace, path), [b"1"]))


def test_stored_files_are_linked(namespace: Namespace, executor: Executor) -> None:
    """Each file has its own outcome, and None stays None."""
    files = [store(namespace, "a"), None, store(namespace, "a/b"), store(namespace, "c")]
    a, nothing, below, c = link_files(files, executor)
    assert isinstance(a, Status) and isinstance(c, Status) and nothing is None
    assert isinstance(below, NotADirectory)
    assert [status.path for status in namespace.walk("")] == ["a", "c"]
    [refused] = link_files([store(namespace, "c")], executor, overwrite=False)
    assert isinstance(refused, AlreadyExists)


def test_two_files_with_one_path_are_made_in_their_order(
    namespace: Namespace, executor: Executor
) -> None:
    """The second one is refused, or replaces the first; no content is left without a file."""
    pair = [store(namespace, "a"), store(namespace, "a")]
    first, refused = link_files(pair, executor, overwrite=False)
    assert isinstance(first, Status) and isinstance(refused, AlreadyExists)
    assert first.data is not None
    assert [info.path for info in objects_in(namespace.store)] == [first.data.path]
    old, new = link_files([store(namespace, "a"), store(namespace, "a")], executor)
    assert isinstance(old, Status) and isinstance(new, Status)
    assert namespace.stat("a").data == new.data != old.data


def test_files_of_several_namespaces_are_linked(namespace: Namespace, executor: Executor) -> None:
    """One call links them, with one transaction for each namespace."""
    url = "memory://files-of-several-namespaces"
    with create_namespace("other", store=url, metadata=url, log=False) as other:
        made = link_files([store(namespace, "a"), store(other, "a")], executor)
        assert [type(each) for each in made] == [Status, Status]
        assert other.read("a") == namespace.read("a") == b"1"


def test_unused_content_is_removed(namespace: Namespace) -> None:
    """Content that no file will use is removed from the store."""
    before = objects_in(namespace.store)
    drop_files([store(namespace, "a"), None, store(namespace, "b"), store(namespace, "b")])
    assert objects_in(namespace.store) == before


def test_the_status_of_a_path(namespace: Namespace) -> None:
    """It is None for a missing file. A URL that ends in a slash is not the URL of a file."""
    namespace.write("d/f", b"1")
    file = at(namespace, "d").below("f")
    assert (file.url, file.name) == ("commitlog://lake/d/f", "f")
    status = file.status()
    assert status is not None and isinstance(status.data, Data)
    assert at(namespace, "none").status() is None
    with pytest.raises(NotADirectory, match="commitlog://lake/d/f is a file"):
        NamespacePath(namespace=namespace, path="d/f", directory_only=True).status()
