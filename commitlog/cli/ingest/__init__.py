"""Commands for sources: their status, problems and repairs."""
