"""Sandboxes: where a model's commands run."""
