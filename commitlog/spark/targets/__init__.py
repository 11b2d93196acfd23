"""Directories that Spark writes and reads, by their URL: outputs, and directories of namespaces.

* `base`: the protocols `Target` (for jobs) and `Source` (for queries), and the order of their calls
* `output`: an output, at the URL of a store
* `namespace`: a directory of a namespace, at a URL ``commitlog://NAME/PATH``
* `directory`: the files and columns of such a directory

Only the functions of this module distinguish the two kinds by the URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from commitlog.spark.targets.base import Source, Target
from commitlog.spark.targets.output import (
    OpenOutput,
    OutputSource,
    OutputTarget,
    WriteOptions,
    open_output,
)

if TYPE_CHECKING:
    from commitlog.spark.targets.namespace import OpenNamespace

# `namespace` is imported when it is needed: each of Spark's processes imports this module, and few need
# namespaces.

__all__ = ["source_of", "target_of", "with_environment"]


def target_of(
    options: Mapping[str, str],
    open_output: OpenOutput = open_output,
    open_namespace: OpenNamespace | None = None,
) -> Target:
    """Return the target at the URL in option ``path``, for the options of a job.

    Args:
        options: the options from Spark.
        open_output: opens an output.
        open_namespace: opens a namespace; None: as the options say.

    Raises `ConfigurationError` for a wrong option, and `NotSupported` for one of the other kind.
    """
    if _in_namespace(options.get("path", "")):
        from commitlog.spark.targets import namespace

        parsed = namespace.NamespaceWriteOptions.parse(options)
        return namespace.NamespaceTarget(parsed, open_namespace or namespace.NamespaceLocation.open)
    return OutputTarget(WriteOptions.parse(options), open_output)


def source_of(
    options: Mapping[str, str],
    open_output: OpenOutput = open_output,
    open_namespace: OpenNamespace | None = None,
) -> Source:
    """Return the source at the URL in option ``path``. Arguments as for `target_of`.

    The options are checked when they are used.
    """
    if _in_namespace(options.get("path", "")):
        from commitlog.spark.targets import namespace

        return namespace.NamespaceSource(options, open_namespace or namespace.NamespaceLocation.open)
    return OutputSource(options, open_output)


def with_environment(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options for the directory at `url`, with those from the environment of this process.

    Data sources run in processes of their own, which do not have it.
    """
    if _in_namespace(url):
        from commitlog.spark.targets import namespace

        return namespace.with_environment(options)
    return dict(options)


def _in_namespace(url: str) -> bool:
    return url.startswith("commitlog://")
