"""Drivers with Dask write to one output through an unreliable network, and some are killed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from commitlog.testing.proxy import Proxy
from support.dataset_race import HAZARDS, DaskDriver, audit
from support.selection import with_all

pytestmark = pytest.mark.servers

#: Jobs that all drivers write.
SHARED = ["shared-1", "shared-2"]


@pytest.mark.parametrize("kind", [with_all("leased"), with_all("native")])
def test_each_job_is_there_once_and_whole_or_not_at_all(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Jobs that are reported as committed are there; a job of several drivers has the rows of one."""
    server: Any = request.getfixturevalue("juicefs" if kind == "leased" else "ministack")
    url = f"s3://{server.new_bucket()}/out"
    direct = dict(server.options)
    if kind == "leased":
        direct["table"] = f"sqlite:///{tmp_path}/leases"
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.endpoint_url))
        proxy.endanger(HAZARDS, seed=1)
        options = {**direct, "endpoint_url": proxy.endpoint_url}
        drivers = [
            stack.enter_context(DaskDriver(url, options, name, [*SHARED, f"own-{name}"], dies=dies))
            for name, dies in (("a", None), ("b", "before"), ("c", "after"))
        ]
        outcomes = [driver.wait() for driver in drivers]
        strikes = proxy.strikes()
    assert outcomes[0] == dict.fromkeys([*SHARED, "own-a"], "done")
    assert strikes
    audit(url, direct, outcomes)
