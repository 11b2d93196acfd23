"""Requests of each operation, their prices, and the bill of a month.

The modules: `operations` (requests as functions of sizes), `contenders` (the same for other systems),
`usage` (requests and units by price), `prices` (price tables), and `workload` (the operations of a
month). docs/cost.md explains the counts. Nothing here sends a request.

>>> month = Workload(jobs=1_000, files_per_job=100)
>>> [line] = month.lines()
>>> line.operation, round(US_EAST_1.dollars(line.usage), 2)
('job of 100 files, listed', 1.53)
"""

from commitlog.cost import operations
from commitlog.cost.contenders import CONTENDERS
from commitlog.cost.operations import ConditionalWrite
from commitlog.cost.prices import US_EAST_1, Billing, PriceTable
from commitlog.cost.usage import Usage
from commitlog.cost.workload import Line, Workload

__all__ = [
    "CONTENDERS",
    "US_EAST_1",
    "Billing",
    "ConditionalWrite",
    "Line",
    "PriceTable",
    "Usage",
    "Workload",
    "operations",
]
