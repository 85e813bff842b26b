"""Serving on a socket: bound before the model loads, announced once requests are answered, closed by a signal."""

import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn

from clotho.embedded.model.engine import Engine
from clotho.embedded.model.http.app import create_app
from clotho.embedded.model.policy import Policy

READY = "serving at "
SECONDS_TO_FINISH = 3


def serve(host: str, port: int, weights: Path, model_name: str) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError where the port is taken, InvalidInput for unknown weights."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        app = create_app(Engine(Policy.load(weights)), model_name)
        # Uvicorn raises the signal it stopped for again, once all is closed.
        signal.signal(signal.SIGTERM, _exit)
        signal.signal(signal.SIGINT, _exit)
        configuration = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=SECONDS_TO_FINISH, lifespan="on"
        )
        _AnnouncingServer(configuration).run(sockets=[bound])


class _AnnouncingServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port, *_ = sockets[0].getsockname()
            sys.stdout.write(f"{READY}http://{f'[{host}]' if ':' in host else host}:{port}\n")
            sys.stdout.flush()


def _exit(_: int, __: FrameType | None) -> None:
    sys.exit(0)
