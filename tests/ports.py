"""Ports for servers that a test starts later, or starts again."""

import socket

HOST = "127.0.0.1"
_reserved: list[socket.socket] = []


def reserved_port() -> int:
    """A free port that the kernel gives to nobody else while this process lives.

    It stays bound here without listening, beside which a server that allows addresses to be reused may listen.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((HOST, 0))
    _reserved.append(holder)
    port: int = holder.getsockname()[1]
    return port
