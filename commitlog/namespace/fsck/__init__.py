"""Checks of a namespace: problems, the checks that find them, and repairs."""
