"""SQLite for several processes: `locking` is fair waiting for the write lock."""
