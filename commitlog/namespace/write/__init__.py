"""Writes to a namespace: planning a change, its transaction, file content, and bulk linking."""
