"""Runs: requested, started, operated on, and read from the store."""
