"""`Usage`: the requests and units that S3 and DynamoDB charge for.

A module of its own so that counts (`operations`, `contenders`) and prices (`prices`) do not import each
other.
"""

from __future__ import annotations

from attrs import asdict, frozen

__all__ = ["Usage"]


@frozen(kw_only=True)
class Usage:
    """Numbers of requests and units, by price. Fractions are averages.

    Attributes:
        put_requests: PUT, COPY, POST and LIST requests to S3. A listing of uploads is a LIST.
        get_requests: GET and HEAD requests to S3.
        free_requests: DELETE requests to S3, deletions of many objects, and aborts of uploads.
        write_units: write request units of DynamoDB: one for each KB of an item, two in a transaction. A
            write whose condition fails costs the same.
        read_units: read request units of DynamoDB: one for each 4 KB of a consistent read.

        queue_requests: requests to SQS, each with up to ten messages.

    The rules are those of `S3 <https://aws.amazon.com/s3/pricing/>`_ and `DynamoDB
    <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html>`_.

    >>> total = Usage(put_requests=1, write_units=2) + 3 * Usage(put_requests=2)
    >>> total.put_requests, total.write_units
    (7, 2)
    """

    put_requests: float = 0
    get_requests: float = 0
    free_requests: float = 0
    write_units: float = 0
    read_units: float = 0
    queue_requests: float = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(**{name: number + getattr(other, name) for name, number in asdict(self).items()})

    def __mul__(self, times: float) -> Usage:
        """Return the usage of `times` such operations."""
        return Usage(**{name: number * times for name, number in asdict(self).items()})

    __rmul__ = __mul__
