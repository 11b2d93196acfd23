"""Registers the Spark data source."""
