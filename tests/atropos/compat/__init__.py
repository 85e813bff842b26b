"""Environments in the shape that those of the in-memory design have, on what they import here."""
