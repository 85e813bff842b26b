"""Atropos' trajectory API with a durable queue: its routes and requests, answered from one SQLite file."""
