"""Random unique ids: nonces, lease owners, names of scratch objects."""

from __future__ import annotations

import secrets

__all__ = ["random_id"]


def random_id() -> str:
    """Return 32 random hexadecimal digits. Thread-safe, and different in a forked child.

    >>> len(random_id()), random_id() == random_id()
    (32, False)
    """
    return secrets.token_hex(16)
