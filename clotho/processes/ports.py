"""TCP ports of this machine."""

import socket

from clotho.errors import InvalidInput

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


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
