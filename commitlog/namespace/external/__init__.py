"""Directories that others write to: overlay, synchronization, pruning, diff and import."""
