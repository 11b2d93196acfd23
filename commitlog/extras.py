"""Packages that only an extra of the distribution installs."""

from __future__ import annotations

from importlib import import_module

__all__ = ["require"]


def require(module: str, *, extra: str, user: str) -> None:
    """Import a package that an extra installs, or name the extra.

    Args:
        module: the package.
        extra: the extra that installs it.
        user: the package of ours that needs it, for the message.

    Raises `ImportError` if the package is not installed.

    >>> require("missing_package", extra="demo", user="commitlog.demo")
    Traceback (most recent call last):
    ImportError: commitlog.demo needs missing_package: pip install 'commitlog-store[demo]'
    """
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        message = f"{user} needs {module}: pip install 'commitlog-store[{extra}]'"
        raise ImportError(message, name=module) from None
