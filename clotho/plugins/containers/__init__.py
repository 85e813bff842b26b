"""Sandboxes in containers of an engine on this host: Docker, or podman through its socket."""
