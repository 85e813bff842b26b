"""Serving an ASGI application on a socket until a signal, with the limits that every server here has."""

import socket
from collections.abc import Callable
from typing import Any, Literal

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clotho.errors import InvalidInput
from clotho.listeners.connections import Connection

BACKLOG = 1024
"""Connections that wait to be accepted."""


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address of this machine; port 0 is a free one. Raises InvalidInput."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{host}:{port} can't be listened at: {said}") from error
    # Connections inherit it. asyncio leaves Nagle's algorithm on for those of such a socket: an answer's body
    # then waits until its headers are acknowledged, 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def url_of(bound: socket.socket) -> str:
    name, port, *_ = bound.getsockname()
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


class Server(uvicorn.Server):
    """Calls `ready` once it answers requests. With `factory`, `app` makes the application, in the event loop."""

    def __init__(
        self,
        app: Any,
        ready: Callable[[], None],
        *,
        most_connections: int,
        seconds_to_finish: int,
        connection: type[H11Protocol] = Connection,
        factory: bool = False,
        lifespan: Literal["on", "off"] = "off",
    ) -> None:
        """`seconds_to_finish`: time that a shutdown leaves to open requests."""
        self._ready = ready
        super().__init__(
            uvicorn.Config(
                app,
                factory=factory,
                http=connection,
                ws="none",
                # else a local client could pass for another by X-Forwarded-For
                proxy_headers=False,
                server_header=False,
                log_level="warning",
                lifespan=lifespan,
                limit_concurrency=most_connections,
                timeout_graceful_shutdown=seconds_to_finish,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # uvicorn returns here also where the application's start-up has failed
        if self.started:
            self._ready()
