"""Environments written for Atropos' in-memory agent design."""
