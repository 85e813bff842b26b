"""Serving on a socket until a signal."""

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from clotho.atropos.api.front import DurableFront
from clotho.atropos.api.queue_file import QueueFile
from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.listeners.connections import connections
from clotho.listeners.early_answers import EarlyAnswers

MOST_CONNECTIONS = 1_000
SECONDS_TO_FINISH = 10
"""Seconds that a shutdown leaves to open requests."""


def serve(
    bound: socket.socket, path: Path, access: Access, limits: BodyLimits, ready: Callable[[], None]
) -> None:
    """Serve the queue in `path`; `ready` is called once requests are answered. Raises InvalidInput for the file."""
    file = QueueFile(path)
    try:
        _Server(DurableFront(file, access, limits), ready).run(sockets=[bound])
    finally:
        file.close()


class _Server(uvicorn.Server):
    def __init__(self, front: DurableFront, ready: Callable[[], None]) -> None:
        self._ready = ready
        super().__init__(
            uvicorn.Config(
                EarlyAnswers(front),
                http=connections(front.client_left, front.connection_ended),
                ws="none",
                proxy_headers=False,
                log_level="warning",
                lifespan="off",
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=SECONDS_TO_FINISH,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
