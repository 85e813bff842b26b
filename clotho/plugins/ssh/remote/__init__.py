"""Sandboxes of another machine: its backend, served over a stream of bytes, and the proxy on this side."""
