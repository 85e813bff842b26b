"""TCP ports of this machine."""

import socket

from clotho.errors import InvalidInput

HOST = "127.0.0.1"


_reserved: list[socket.socket] = []


def free_port() -> int:
    """A free port, which the kernel gives to no other program while this process lives.

    It stays bound here without listening: a server that lets addresses be reused, as most do, can listen at it.
    """
    reservation = socket.socket()
    # Linux lets two sockets bind one port if both have this option and neither listens
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((HOST, 0))
    _reserved.append(reservation)
    port: int = reservation.getsockname()[1]
    return port


def take(port: int) -> bool:
    """Take `port` while this process lives; False if something listens there, or it was taken before.

    The mark is an abstract socket: like ports it belongs to a network namespace, and ends with its process.
    """
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0clotho/port/{port}")
        socket.create_server((HOST, port)).close()
    except OSError:
        mark.close()  # whoever comes when the port is free may have it
        return False
    _reserved.append(mark)
    return True


def port_is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def claim(port: int) -> None:
    """Raise InvalidInput if something listens at `port`; 0, any port, is always free."""
    if not port_is_free(port):
        raise InvalidInput(f"port {port} is in use: stop what listens there, or choose another")
