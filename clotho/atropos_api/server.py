"""Serving on a socket until a signal."""

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from clotho.atropos_api.front import DurableFront
from clotho.atropos_api.queue_file import QueueFile

SECONDS_TO_FINISH = 10
"""What a shutdown leaves to requests under way."""


def serve(bound: socket.socket, path: Path, ready: Callable[[], None]) -> None:
    """Serve the queue in `path`; `ready` is called once requests are answered. Raises InvalidInput for the file."""
    file = QueueFile(path)
    try:
        _Server(DurableFront(file), ready).run(sockets=[bound])
    finally:
        file.close()


class _Server(uvicorn.Server):
    def __init__(self, front: DurableFront, ready: Callable[[], None]) -> None:
        self._ready = ready
        super().__init__(
            uvicorn.Config(
                front, log_level="warning", lifespan="off", timeout_graceful_shutdown=SECONDS_TO_FINISH
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
