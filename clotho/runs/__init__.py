"""Runs: ordered, started, operated on, and read from the store."""
