"""Checks of the `ObjectStore` contract on listings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from commitlog.errors import ConfigurationError
from commitlog.stores.api import Page
from commitlog.testing.contract.assertions import assert_raises
from commitlog.testing.contract.store_run import StoreRun

__all__ = ["LIST_CHECKS"]

# What sorts differently by whole path than directory by directory, by characters than by UTF-16 units,
# and with case folded.
_NAMES = (
    *("a-b", "a/1", "a/2/x", "a/2/y", "a/2-", "a0", "aa", "a.b/c"),
    *("B", "b", "z/z", "\uffee", "\U0001f986", "é", "e\u0301/f"),
)


def _check_list(run: StoreRun) -> None:
    base = run.path("list/")
    paths = [base + name for name in _NAMES]
    for path in paths:
        run.store.put(path, path.encode())
    run.store.put(run.path("list-else"), b"")
    listed = [info.path for info in run.store.list(base)]
    assert sorted(listed) == sorted(paths), f"listed: {listed}"
    if run.byte_order:
        assert listed == sorted(paths, key=str.encode), f"not in the byte order of UTF-8: {listed}"
    for info in run.store.list(base):
        assert info.size == len(info.path.encode()), f"listed size of {info.path!r}: {info.size}"
    for prefix in ("a", "a/", "a/2", "a/2/", "a-b", "a-bc", "nothing", "\U0001f986", "b"):
        found = [info.path for info in run.store.list(base + prefix)]
        assert found == [path for path in listed if path.startswith(base + prefix)], (
            f"{prefix!r}: {found}"
        )
    _check_pages(run, base, listed)
    _check_start_after(run, base, listed)
    _check_delimiter(run, base, listed)


def _check_pages(run: StoreRun, base: str, listed: Sequence[str]) -> None:
    for limit in (1, 2, 5, len(listed), 1000):
        pages = list(_pages(run, base, limit=limit))
        assert all(len(page.objects) <= limit for page in pages), f"a page has more than {limit} entries"
        found = [info.path for page in pages for info in page.objects]
        assert found == listed, f"pages of {limit} give {found}"
    half = list(_pages(run, base, limit=3, start_after=listed[4]))
    found = [info.path for page in half for info in page.objects]
    assert found == listed[5:], f"pages after {listed[4]!r} give {found}"


def _check_start_after(run: StoreRun, base: str, listed: Sequence[str]) -> None:
    for number, path in enumerate(listed):
        found = [info.path for info in run.store.list(base, start_after=path)]
        assert found == listed[number + 1 :], f"after {path!r}: {found}"
    if run.byte_order:
        # S3 takes any string, not just the path of an object
        for after in ("", base, base + "a/", base + "a/2", base + "a/2/xx", base + "a/3", base + "z0"):
            found = [info.path for info in run.store.list(base, start_after=after)]
            assert found == [path for path in listed if path > after], f"after {after!r}: {found}"


def _check_delimiter(run: StoreRun, base: str, listed: Sequence[str]) -> None:
    for prefix in (base, base + "a", base + "a/", base + "a/2", base + "a/2/", run.path("list")):
        objects, prefixes = _rolled_up(
            prefix, listed if prefix != run.path("list") else [*listed, prefix]
        )
        if prefix == run.path("list"):
            objects = [run.path("list-else")]
        for limit in (1, 3, 1000):
            pages = list(_pages(run, prefix, limit=limit, delimiter="/"))
            assert all(len(page.objects) + len(page.prefixes) <= limit for page in pages), (
                "page too long"
            )
            found = [info.path for page in pages for info in page.objects]
            rolled = [prefix for page in pages for prefix in page.prefixes]
            assert sorted(found) == sorted(objects), f"{prefix!r}, pages of {limit}: objects {found}"
            assert sorted(rolled) == sorted(prefixes), f"{prefix!r}, pages of {limit}: prefixes {rolled}"
        pages = list(run.store.list_pages(prefix, delimiter="/"))
        assert [page.next_token is None for page in pages] == [False] * (len(pages) - 1) + [True]
        found = [info.path for page in pages for info in page.objects]
        rolled = [prefix for page in pages for prefix in page.prefixes]
        assert (sorted(found), sorted(rolled)) == (sorted(objects), sorted(prefixes)), (
            f"{prefix!r}, all pages: objects {found}, prefixes {rolled}"
        )


def _rolled_up(prefix: str, paths: Sequence[str]) -> tuple[list[str], set[str]]:
    below = [path[len(prefix) :] for path in paths if path.startswith(prefix)]
    objects = [prefix + rest for rest in below if "/" not in rest]
    return objects, {prefix + rest[: rest.index("/") + 1] for rest in below if "/" in rest}


def _pages(
    run: StoreRun, prefix: str, *, limit: int, start_after: str = "", delimiter: str = ""
) -> Iterator[Page]:
    token: str | None = None
    seen: set[str] = set()
    while True:
        page = run.store.list_page(
            prefix, start_after=start_after, delimiter=delimiter, limit=limit, token=token
        )
        yield page
        token = page.next_token
        if token is None:
            return
        assert token not in seen, f"the pages of {prefix!r} go in circles"
        seen.add(token)


def _check_resume(run: StoreRun) -> None:
    base = run.path("resume/")
    names = ("a", "app-eu/1", "app.x", "app/1", "app/2", "b", *(["app"] if run.nested else []))
    for name in names:
        run.store.put(base + name, b"")
    listed = [info.path for info in run.store.list(base)]
    for number, path in enumerate(listed):
        found = [info.path for info in run.store.resume(base, after=path)]
        assert found == listed[number + 1 :], f"continued after {path!r}: {found}"


def _check_list_arguments(run: StoreRun) -> None:
    for limit in (0, -1, 1001):
        assert_raises(ConfigurationError, f"limit {limit}", run.store.list_page, run.prefix, limit=limit)
    assert_raises(ConfigurationError, "delimiter '-'", run.store.list_page, run.prefix, delimiter="-")
    page = run.store.list_page(run.path("nothing/"), delimiter="/")
    assert page == Page(objects=()), f"the list of nothing is {page}"


def _check_list_is_current(run: StoreRun) -> None:
    base = run.path("current/")
    for number in range(5):
        run.store.put(f"{base}{number}", b"")
        assert len(list(run.store.list(base))) == number + 1, "a put that returned is not listed"
    for number in range(5):
        run.store.delete(f"{base}{number}")
        assert len(list(run.store.list(base))) == 4 - number, "a deleted object is listed"


LIST_CHECKS: tuple[Callable[[StoreRun], None], ...] = (
    _check_list,
    _check_resume,
    _check_list_arguments,
    _check_list_is_current,
)
