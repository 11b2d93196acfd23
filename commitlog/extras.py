"""Packages that only an extra of the distribution installs."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["require"]


def require(module: str, *, extra: str, user: str) -> None:
    """Raise an `ImportError` that names an extra, unless the extra's package is installed.

    The package is not imported.

    Args:
        module: the package, such as ``pyarrow``.
        extra: the extra that installs it.
        user: the package or option that needs it, for the message.

    >>> require("missing_package", extra="spark", user="commitlog.spark")
    Traceback (most recent call last):
    ImportError: commitlog.spark needs missing_package: pip install 'commitlog-store[spark]'
    """
    if find_spec(module) is None:
        message = f"{user} needs {module}: pip install 'commitlog-store[{extra}]'"
        raise ImportError(message, name=module)
