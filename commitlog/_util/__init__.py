"""Helpers that know nothing of object stores: retries, parallel work, ids, immutable records."""
