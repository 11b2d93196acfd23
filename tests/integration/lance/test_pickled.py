"""A pickled Lance dataset, as Dask, Ray and data loaders send it: it has no namespace any more."""

from __future__ import annotations

import pickle

import lance
import pyarrow
import pytest

from commitlog.lance import CommitlogNamespace
from support.servers import Seaweedfs

pytestmark = [pytest.mark.servers, pytest.mark.filterwarnings("ignore::UserWarning:lance")]


def test_a_pickled_dataset_reads_and_does_not_commit_under_leases(seaweedfs: Seaweedfs) -> None:
    """It would commit by its URI, without a lease. The dataset itself commits as before."""
    root = f"s3://{seaweedfs.new_bucket()}/lake"
    with CommitlogNamespace(root, table="memory://leases-of-lance", **seaweedfs.options) as namespace:
        dataset = lance.write_dataset(
            pyarrow.table({"id": [1, 2]}), namespace_client=namespace, table_id=["events"]
        )
        pickled = pickle.loads(pickle.dumps(dataset))
        assert pickled.count_rows() == 2
        with pytest.raises(OSError, match="conditional put is disabled"):
            pickled.delete("id = 1")
        dataset.delete("id = 2")
        assert lance.dataset(namespace_client=namespace, table_id=["events"]).count_rows() == 1
