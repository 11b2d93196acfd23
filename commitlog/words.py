"""Words that nobody else ever makes: nonces, lease owners, names of scratch objects.

Imports nothing of the project.
"""

from __future__ import annotations

import secrets

__all__ = ["random_word"]


def random_word() -> str:
    """Return 32 random hexadecimal digits. Thread-safe, and different in a forked child.

    >>> len(random_word()), random_word() == random_word()
    (32, False)
    """
    return secrets.token_hex(16)
