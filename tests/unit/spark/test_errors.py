"""Errors of this library in the texts of Spark's exceptions, without Spark."""

from __future__ import annotations

import pytest

from commitlog.errors import CommitError, JobAborted, JobAlreadyCommitted, OutcomeUnknown, Unavailable
from commitlog.spark.errors import error_of, own_errors

UNKNOWN = "commitlog.errors.OutcomeUnknown: the record may be there"
ABORTED = "commitlog.errors.JobAborted: a recovery was here"
ABOVE = "\n\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (UNKNOWN, OutcomeUnknown),
        (f"Traceback:\n{UNKNOWN}{ABOVE}{ABORTED}\n", JobAborted),
        (f"Traceback:\n{ABORTED}{ABOVE}{UNKNOWN}\n", OutcomeUnknown),
        (f"Writing failed.\n\tat a.b\nCaused by: Failed: {UNKNOWN}\n\tat a.b\n", OutcomeUnknown),
        (f"{ABORTED}\n\tat a.b\nCaused by: Failed: {UNKNOWN}\n\tat a.b\n", OutcomeUnknown),
        (f"{UNKNOWN}\n\tat a.b\n\tSuppressed: Failed: {ABORTED}\n\t\tat a.b\n", OutcomeUnknown),
        (f"Failed: no memory\n\tat a.b\n\tSuppressed: Failed: {ABORTED}\n\t\tat a.b\n", None),
        ("commitlog.errors.Missing: an error of a later release", None),
        ("Writing failed.", None),
    ],
)
def test_the_error_of_the_commit_is_found(text: str, expected: type[CommitError] | None) -> None:
    """The root cause counts, and of it the last error. An abort after it may fail for another reason."""
    assert type(error_of(RuntimeError(text))) is (expected or type(None))


def test_an_error_is_raised_in_place_of_that_of_spark() -> None:
    """It names the job; an exception without one is raised as it is."""
    repeated = RuntimeError("commitlog.errors.JobAlreadyCommitted: job 'a' is part of the output")
    with pytest.raises(JobAlreadyCommitted, match="job 'a' is part") as found, own_errors("a"):
        raise repeated
    assert (found.value.job_id, found.value.__cause__) == ("a", repeated)
    for error in (KeyError("a"), Unavailable("not now")):
        with pytest.raises(type(error)) as other, own_errors("a"):
            raise error
        assert other.value is error
