"""Sandboxes on this host."""
