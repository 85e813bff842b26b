"""Sandboxes in clouds: Modal, E2B and Daytona, through the package of each."""
