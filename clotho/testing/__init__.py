"""Deterministic stand-ins that ship, for tests of environments and for benchmarks."""
