"""A namespace's operation log: entries, checkpoints, recovery, compaction and restore."""
