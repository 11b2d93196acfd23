"""The shares of a rate that the tasks of a cluster get."""

from __future__ import annotations

import pickle

from attrs import evolve

from commitlog.spark.cluster import NamespaceAddress

PLACE = NamespaceAddress(name="lake", metadata="sqlite:///names", store="file:///store", options={})


def test_credentials_of_a_place_are_not_in_its_repr() -> None:
    """Spark prints what a task captures."""
    secret = "?access_key_id=AKIA&secret_access_key=geheim"
    place = NamespaceAddress.of(
        "lake",
        metadata=f"dynamodb://names{secret}",
        store=f"s3://bucket{secret}",
        options={"leases": f"dynamodb://leases{secret}"},
    )
    assert "lake" in repr(place) and "geheim" not in repr(place)


def test_tasks_share_the_rate_of_writes() -> None:
    """The driver has all of it while no task runs."""
    place = evolve(PLACE, write_units=100.0, tasks=4)
    assert (place.write_units, place.task_write_units) == (100.0, 25.0)
    assert evolve(PLACE, tasks=4).task_write_units is None


def test_a_place_reaches_the_tasks() -> None:
    """So do the functions that open the namespace there."""
    place = evolve(PLACE, write_units=100.0, tasks=4)
    assert pickle.loads(pickle.dumps(place.open_repairer)).__self__ == place
    assert pickle.loads(pickle.dumps(place.access("file:///store"))).keywords["write_units"] == 25.0
