"""CSV: the format, its dialect, its parser and the values of its fields."""
