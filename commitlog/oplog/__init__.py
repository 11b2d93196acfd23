"""One operation, pending until it is decided."""
