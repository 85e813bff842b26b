"""Sandboxes on a pool of hosts that are reached through ssh."""
