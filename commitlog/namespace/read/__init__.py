"""Reads of a namespace: path lookup, listings, and views that merge bound directories."""
