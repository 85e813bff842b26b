"""Serving on a socket until a signal."""

import socket
from collections.abc import Callable
from pathlib import Path

from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.listeners.connections import connections
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.listening import Server
from clotho.plugins.atropos.api.front import DurableFront
from clotho.plugins.atropos.api.queue_file import QueueFile

MOST_CONNECTIONS = 1_000
SECONDS_TO_FINISH = 10
"""Seconds that a shutdown leaves to open requests."""


def serve(
    bound: socket.socket, path: Path, access: Access, limits: BodyLimits, ready: Callable[[], None]
) -> None:
    """Serve the queue in `path`; `ready` is called once requests are answered. Raises InvalidInput for the file."""
    file = QueueFile(path)
    front = DurableFront(file, access, limits)
    server = Server(
        EarlyAnswers(front),
        ready,
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
        connection=connections(front.client_left, front.connection_ended),
    )
    try:
        server.run(sockets=[bound])
    finally:
        file.close()
