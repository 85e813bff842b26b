"""Serving on a socket: announced once requests are answered, closed by a signal."""

import asyncio
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn

from clotho.embedded.model.engine import Engine
from clotho.embedded.model.http.app import create_app
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.process import READY
from clotho.listeners.access import Access
from clotho.listeners.connections import Connection

SECONDS_TO_SAY_SO = 2
"""What a shutdown leaves to the requests that it ends."""


def serve(bound: socket.socket, weights: Path, model_name: str, access: Access) -> None:
    """Serve on a bound socket until SIGTERM or SIGINT, then exit. Raises OSError and InvalidInput for `weights`."""
    engine = Engine(Policy.load(weights))
    # Uvicorn raises the signal it stopped for again, once all is closed.
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)
    _Server(engine, model_name, weights, access).run(sockets=[bound])


class _Server(uvicorn.Server):
    def __init__(self, engine: Engine, model_name: str, weights: Path, access: Access) -> None:
        self._engine = engine
        super().__init__(
            uvicorn.Config(
                create_app(engine, model_name, weights, access),
                http=Connection,
                ws="none",
                proxy_headers=False,
                log_level="warning",
                timeout_graceful_shutdown=SECONDS_TO_SAY_SO,
                lifespan="on",
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port, *_ = sockets[0].getsockname()
            sys.stdout.write(f"{READY}http://{f'[{host}]' if ':' in host else host}:{port}\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._engine.stop)
        await super().shutdown(sockets)


def _exit(_: int, __: FrameType | None) -> None:
    sys.exit(0)
