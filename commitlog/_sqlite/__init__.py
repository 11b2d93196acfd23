"""SQLite for several threads and processes.

`locking` is fair waiting for the write lock, `fork_safety` closes connections around a fork.
"""
