"""Lance and LanceDB tables whose versions are created once, on every store.

`CommitlogNamespace` is a namespace of Lance: ``lance.write_dataset(…, namespace_client=…, table_id=…)``
commits through it. `commit_lock` is the weaker second choice, for callers that name a table by its URL.
The modules: `namespace` (the methods that Lance calls), `catalog` (records of namespaces and tables),
`versions` (manifests), `storage_options` (endpoint and credentials for Lance), `locking` (the lock).
"""

from commitlog.extras import require

require("lance_namespace", extra="lance", user=__name__)

from commitlog.lance.locking import CommitLock, commit_lock  # noqa: E402
from commitlog.lance.namespace import CommitlogNamespace  # noqa: E402

__all__ = ["CommitLock", "CommitlogNamespace", "commit_lock"]
