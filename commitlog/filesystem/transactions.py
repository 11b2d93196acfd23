"""The ends of transactions: how the files that were written in one are made.

`publish_at_once` makes the files of a namespace in one transaction of its metadata table. A plain store
has no such transaction: `publish_in_order` makes its files one after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from commitlog.errors import (
    CommitError,
    ConfigurationError,
    NotSupported,
    OutcomeUnknown,
    TransactionTooLarge,
)
from commitlog.filesystem.file import WriteFile
from commitlog.namespace import LINK_BATCH_SIZE

__all__ = ["publish_at_once", "publish_in_order"]

#: The advice for files that do not fit into one transaction.
_WITHOUT_TRANSACTION = (
    "Or write them without a transaction to a new directory that has no readers yet, then rename it"
)


def publish_at_once(files: Sequence[WriteFile]) -> None:
    """Make all written files of a namespace in one transaction of its table.

    After an error, their content is removed, unless the outcome is unknown.

    Raises:
        ConfigurationError: a file is not closed.
        NotSupported: the files are in several namespaces, or only some of them have to be new.
        TransactionTooLarge: there are more files than one transaction can make.
        AlreadyExists, IsADirectory, NotADirectory: as in `Namespace.write`.
        OutcomeUnknown: the files may exist, or may still appear. No content is removed.
    """
    try:
        written = _written(files)
        last_files = {file.target.path: file for file in written}
        _check_namespace(written, last_files.values())
        if last_files:
            first = next(iter(last_files.values()))
            link = partial(
                first.target.namespace.link_many,
                {path: file.data for path, file in last_files.items()},
                overwrite=not first.exclusive,
            )
            if len(last_files) == 1:
                link()  # works during interpreter shutdown too, when no thread can start
            else:
                with ThreadPoolExecutor(LINK_BATCH_SIZE, "commitlog-read") as readers:
                    link(executor=readers)
    except OutcomeUnknown:
        raise
    except CommitError as error:
        _discard(files)
        if isinstance(error, TransactionTooLarge):
            raise TransactionTooLarge(f"{error}. {_WITHOUT_TRANSACTION}") from error
        raise
    for file in last_files.values():
        file.data = None  # the file owns it now
    _discard(files)


def _check_namespace(written: Iterable[WriteFile], last_files: Iterable[WriteFile]) -> None:
    if len({file.target.namespace.name for file in written}) > 1:
        raise NotSupported("a transaction makes files in one namespace: use one transaction for each")
    if len({file.exclusive for file in last_files}) > 1:
        raise NotSupported(
            "a transaction cannot make both files that must be new (mode 'x') and files that may replace"
            " others (mode 'w'): use two transactions"
        )


def publish_in_order(files: Sequence[WriteFile]) -> None:
    """Make the written files of a plain store one after the other, in the order of their opening.

    All content is stored before the first file is made, and all files that have to be new are looked up.
    So what is left is one small request for each file. The files are not made at once: readers may see
    the first ones only, and if this process dies, the others never appear. So open the file that tells
    readers about the others, such as a manifest, last.

    Raises:
        ConfigurationError: a file is not closed. No file was made.
        AlreadyExists: a file that has to be new exists.
        OutcomeUnknown: it is not known whether one of the files was made.

    After an error, the files before the one that failed are there, and stay; a note says how many. Those
    after it were not made, and their content is removed.
    """
    made = 0
    last_files: dict[str, WriteFile] = {}
    try:
        for file in _written(files):
            last_files.pop(file.path, None)
            last_files[file.path] = file
        for file in last_files.values():
            if file.exclusive:
                file.target.check_absent()
        for file in last_files.values():
            data, file.data = file.data, None  # while the outcome is unknown, nothing is dropped
            file.target.publish(data, overwrite=not file.exclusive)
            made += 1
    except CommitError as error:
        if made:
            error.add_note(
                f"{made} of {len(last_files)} files of the transaction were made before the error, and"
                " stay; the rest were not made"
            )
        raise
    finally:
        _discard(files)


def _written(files: Sequence[WriteFile]) -> list[WriteFile]:
    """Return the files that were not discarded. Raises `ConfigurationError` if one is open."""
    for file in files:
        if not file.closed:
            raise ConfigurationError(
                f"{file.path!r} is still open: close it before the transaction ends"
            )
    return [file for file in files if file.data is not None]


def _discard(files: Sequence[WriteFile]) -> None:
    for file in files:
        with contextlib.suppress(CommitError):
            file.discard()
