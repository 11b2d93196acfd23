"""A catalog of Apache Iceberg tables for pyiceberg, which needs no server.

pyiceberg loads it by the property ``py-catalog-impl: commitlog.iceberg.Catalog``.

The modules, from the top: `catalog` (the class that pyiceberg loads), `properties` (opens the store
that its properties name), `records` (reads and changes the records in a store), `model` (the records,
and the rules for names).
"""

from commitlog.extras import require

require("pyiceberg", extra="iceberg", user=__name__)

from commitlog.iceberg.catalog import Catalog  # noqa: E402

__all__ = ["Catalog"]
