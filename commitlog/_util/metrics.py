"""Metrics as text: OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Literal, TypeVar

from attrs import field, frozen, validators

__all__ = ["Metric", "openmetrics"]

T = TypeVar("T")

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@frozen
class Metric(Generic[T]):
    """A metric of objects of one kind.

    Attributes:
        name: ends with the unit, if there is one; the name of a counter does not end with ``_total``.
        kind: a gauge goes up and down; a counter only goes up, until the process restarts.
        help: a sentence.
        value: returns the value for an object; None if it is unknown.
        labels: distinguish metrics of the same name, which must follow one another.
    """

    name: str = field(validator=validators.matches_re("[a-z][a-z0-9_]*(?<!_total)"))
    kind: Literal["gauge", "counter"]
    help: str
    value: Callable[[T], float | None]
    labels: Mapping[str, str] = _NO_LABELS

    @property
    def unit(self) -> str | None:
        """The unit: seconds or bytes, or None for a plain number."""
        last = self.name.rpartition("_")[2]
        return last if last in ("seconds", "bytes") else None


def openmetrics(
    metrics: Sequence[Metric[T]], things: Sequence[tuple[Mapping[str, str], T]], *, prefix: str
) -> str:
    r"""Return an exposition of `metrics` for all of `things`, each with its own labels.

    >>> metrics = [Metric("size_bytes", "gauge", "How large it is.", len)]
    >>> print(openmetrics(metrics, [({"of": 'a"'}, b"123")], prefix="my_"), end="")
    # TYPE my_size_bytes gauge
    # UNIT my_size_bytes bytes
    # HELP my_size_bytes How large it is.
    my_size_bytes{of="a\""} 3
    # EOF
    """
    lines: list[str] = []
    last = None
    for metric in metrics:
        name = prefix + metric.name
        if name != last:
            lines.append(f"# TYPE {name} {metric.kind}")
            if metric.unit is not None:
                lines.append(f"# UNIT {name} {metric.unit}")
            lines.append(f"# HELP {name} {metric.help.translate(_ESCAPES)}")
        last = name
        sample = f"{name}_total" if metric.kind == "counter" else name
        for labels, thing in things:
            value = metric.value(thing)
            if value is not None:
                labelled = {**labels, **metric.labels}.items()
                inside = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labelled)
                lines.append(f"{sample}{{{inside}}} {value!r}")
    return "\n".join([*lines, "# EOF", ""])
