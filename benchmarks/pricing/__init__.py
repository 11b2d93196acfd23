"""Requests of each operation, their prices, and the bill of a month.

The modules: `operations` (requests as functions of sizes), `contenders` (the same for other systems),
`usage` (requests and units by price), and `prices` (price tables). docs/cost.md explains the counts.
Nothing here sends a request.

>>> round(US_EAST_1.dollars(1_000 * operations.output_job(100)), 2)
1.53
"""

from pricing import operations
from pricing.contenders import CONTENDERS
from pricing.operations import ConditionalWrite
from pricing.prices import US_EAST_1, Billing, PriceTable
from pricing.usage import Usage

__all__ = [
    "CONTENDERS",
    "US_EAST_1",
    "Billing",
    "ConditionalWrite",
    "PriceTable",
    "Usage",
    "operations",
]
