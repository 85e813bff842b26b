"""Sandboxes in containers: their engine dies, or they do, by other hands than their worker's."""
