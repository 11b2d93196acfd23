"""Commands that read, write, move and list objects."""
