"""The clock of this machine, and what it counts while the machine sleeps."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from commitlog.clock import SystemClock

_CODE = "from commitlog.clock import SystemClock; print(SystemClock().monotonic())"
#: A time namespace in which the machine seems to have slept for a day: CLOCK_BOOTTIME alone is ahead.
_SLEPT = ["unshare", "--time", "--boottime", "86400", "--fork", "--map-root-user"]


def _sleeper() -> list[str]:
    """Return what runs a command in that namespace, or skip the test where the kernel allows none."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is not installed")
    for command in (_SLEPT, _SLEPT[:-1]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("no time namespace may be made here")


def test_suspension_counts() -> None:
    """After it, a lease or a look from before is as old as it is in truth."""
    command = [*_sleeper(), sys.executable, "-c", _CODE]
    shown = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert shown - SystemClock().monotonic() > 86_000


def test_it_goes_on_and_can_be_slept_on() -> None:
    """At least as far as was asked for."""
    clock = SystemClock()
    before, wall = clock.monotonic(), clock.epoch()
    clock.sleep(0.01)
    clock.sleep(-1)
    assert clock.monotonic() - before >= 0.01
    assert wall - 5 < time.time()
