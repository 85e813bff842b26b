"""The container engine, for tasks that have images."""

from tests.containers import engine

__all__ = ["engine"]
