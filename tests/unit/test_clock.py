"""The clock of this machine, and its behaviour while the machine sleeps."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from commitlog.clock import SystemClock

_CODE = "from commitlog.clock import SystemClock; print(SystemClock().monotonic())"
#: A time namespace in which the machine seems to have slept for a day: only CLOCK_BOOTTIME is ahead.
_SLEPT = ["unshare", "--time", "--boottime", "86400", "--fork", "--map-root-user"]


def _sleeper() -> list[str]:
    """Return a command prefix that enters that namespace, or skip the test if the kernel forbids it."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is not installed")
    for command in (_SLEPT, _SLEPT[:-1]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("no time namespace may be made here")


def test_the_clock_counts_suspension() -> None:
    """After a suspension, a lease or a lookup from before it has its true age."""
    command = [*_sleeper(), sys.executable, "-c", _CODE]
    shown = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert shown - SystemClock().monotonic() > 86_000


def test_a_sleep_takes_at_least_its_duration() -> None:
    """The monotonic clock advances by at least these seconds. A negative sleep returns at once."""
    clock = SystemClock()
    before, wall = clock.monotonic(), clock.epoch()
    clock.sleep(0.01)
    clock.sleep(-1)
    assert clock.monotonic() - before >= 0.01
    assert wall - 5 < time.time()
