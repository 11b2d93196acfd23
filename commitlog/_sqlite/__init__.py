"""SQLite for several threads and processes: write locking, safety at a fork."""
