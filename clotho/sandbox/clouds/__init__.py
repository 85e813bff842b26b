"""Sandboxes in clouds: Modal and E2B, through the package of each."""
