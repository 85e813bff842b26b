"""Ports for servers that tests start."""

import socket
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The ports that the kernel gives to whoever asks for any."""


def unshared_port() -> int:
    """A free port for a server that starts later: none that the kernel gives to another program meanwhile."""
    first, _ = map(int, RANGE.read_text().split())
    while True:
        port = SystemRandom().randrange(first // 2, first)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
