"""Removal of deleted files: emptying the trash, and collecting objects that no file refers to."""
