"""Errors: one tree, the matching builtins, and no data lost between processes."""

import pickle

import pytest

from commitlog import errors
from commitlog.tables import ConditionFailed

LEAVES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_tree(leaf):
    """Every error is a CommitError, and its docstring describes the state of the caller."""
    assert issubclass(leaf, errors.CommitError)
    assert leaf.__doc__


@pytest.mark.parametrize(
    "error",
    [
        errors.JobAlreadyCommitted("there", job_id="daily", version=7),
        errors.TransactionCanceled("no", reasons=(None, ConditionFailed("x", item_known=True))),
        ConditionFailed("stale", item={"path": "a", "generation": 2}, item_known=True),
        errors.OutcomeUnknown("maybe"),
        errors.PublishIncomplete("hidden", job_id="daily", version=7, lost=("a.parquet",)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_pickle(error):
    """An error that crosses a process boundary keeps its type, message and attributes."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert {k: str(v) for k, v in vars(copy).items()} == {k: str(v) for k, v in vars(error).items()}


@pytest.mark.parametrize(
    ("leaf", "builtin"),
    [
        (errors.AlreadyExists, FileExistsError),
        (errors.NotFound, FileNotFoundError),
        (errors.AccessDenied, PermissionError),
        (errors.Unavailable, ConnectionError),
        (errors.LeaseTimeout, TimeoutError),
        (errors.ConfigurationError, ValueError),
        (errors.NotSupported, NotImplementedError),
    ],
)
def test_builtins(leaf, builtin):
    """An error can be caught as the matching builtin."""
    assert issubclass(leaf, builtin)
    assert not issubclass(errors.OutcomeUnknown, (OSError, ValueError))


@pytest.mark.parametrize("leaf", [errors.BucketNotFound, errors.TableNotFound])
def test_a_missing_bucket_or_table_is_not_a_missing_object(leaf):
    """Code that handles a missing object or file does not catch the error of a missing store."""
    assert not issubclass(leaf, (errors.NotFound, OSError, LookupError))


def test_a_committed_job_is_not_an_unknown_outcome():
    """`PublishIncomplete` says that the job happened: code for outcomes to look up does not catch it."""
    assert issubclass(errors.PublishIncomplete, errors.Committed)
    assert not issubclass(errors.Committed, (errors.OutcomeUnknown, OSError, ValueError))
    assert not issubclass(errors.OutcomeUnknown, errors.Committed)
