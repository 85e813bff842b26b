"""Serving the viewer on a socket of this machine until a signal."""

import socket
from collections.abc import Callable

import uvicorn

from clotho.listeners.connections import Connection
from clotho.listeners.early_answers import EarlyAnswers
from clotho.viewer.app import Viewed, Viewer

MOST_CONNECTIONS = 200
SECONDS_TO_FINISH = 2


def serve(bound: socket.socket, viewed: Viewed, ready: Callable[[], None]) -> None:
    """Serve `viewed`; `ready` is called once requests are answered."""
    _Server(viewed, ready).run(sockets=[bound])


class _Server(uvicorn.Server):
    def __init__(self, viewed: Viewed, ready: Callable[[], None]) -> None:
        self._ready = ready
        super().__init__(
            uvicorn.Config(
                lambda: EarlyAnswers(Viewer(viewed).application()),
                factory=True,
                http=Connection,
                ws="none",
                proxy_headers=False,
                server_header=False,
                log_level="warning",
                lifespan="on",
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=SECONDS_TO_FINISH,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
