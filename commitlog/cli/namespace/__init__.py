"""The command group ``namespace``: create, check and maintain namespaces."""

from __future__ import annotations

from types import MappingProxyType

import click

from commitlog.cli.lazy import LazyCommand, LazyGroup

__all__ = ["namespace"]

_CREATE, _MAINTAIN, _EXTERNAL = "Namespaces", "Maintenance", "Directories of other programs"
_COMMANDS = MappingProxyType(
    {
        name: LazyCommand(f"commitlog.cli.namespace.{target}", short_help, section)
        for section, name, target, short_help in (
            (_CREATE, "create", "admin:create", "Create a namespace."),
            (_CREATE, "list", "admin:list_", "List namespaces."),
            (_CREATE, "describe", "admin:describe", "Show the location and format of a namespace."),
            (_MAINTAIN, "fsck", "fsck:fsck", "Check and repair a namespace."),
            (_MAINTAIN, "gc", "maintenance:gc", "Free the space of removed files."),
            (_MAINTAIN, "recover", "maintenance:recover", "Decide pending changes of dead clients."),
            (_MAINTAIN, "compact", "maintenance:compact", "Shorten the log."),
            (_MAINTAIN, "reshard", "admin:reshard", "Spread a directory over more partitions."),
            (_MAINTAIN, "restore", "restore:restore", "Restore a lost table from the log."),
            (_MAINTAIN, "rewrite-log", "restore:rewrite_log", "Rewrite the log from the table."),
            (_EXTERNAL, "import", "importing:import_", "Create files from existing objects."),
            (_EXTERNAL, "diff", "importing:diff", "Show differences from the store."),
            (_EXTERNAL, "bind", "bindings:bind", "Show objects of the store in a directory."),
            (_EXTERNAL, "unbind", "bindings:unbind", "End the binding of a directory."),
            (_EXTERNAL, "sync", "bindings:sync", "Record changes of the store in the table."),
            (_EXTERNAL, "prune", "bindings:prune", "Remove records of missing objects."),
        )
    }
)


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def namespace() -> None:
    """Create, check and maintain namespaces: file trees whose names are in a table.

    --metadata names the table, which several namespaces may share. SQLite tables are created on first
    use. Create a DynamoDB table with "commitlog table create --for namespaces".
    """
