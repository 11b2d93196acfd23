"""Constants of the library by their names, as the documentation gives them."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import attrs

__all__ = ["value_of"]


def value_of(name: str) -> Any:
    """Return the value of a constant, or the default of an argument.

    Args:
        name: full name below ``commitlog``; for an argument, ``module.function(argument)``.
    """
    name, _, argument = name.rstrip(")").partition("(")
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["commitlog", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        break
    else:
        raise LookupError(name)
    if not argument:
        return found
    if attrs.has(found):
        return getattr(attrs.fields(found), argument).default
    return inspect.signature(found).parameters[argument].default
