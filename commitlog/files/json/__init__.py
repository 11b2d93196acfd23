"""JSON: the format, its fast and its exact reader, its writer and its scalars (simple values)."""
