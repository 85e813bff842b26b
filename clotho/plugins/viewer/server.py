"""Serving the viewer on a socket of this machine until a signal."""

import socket
from collections.abc import Callable

from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.listening import Server
from clotho.plugins.viewer.app import Viewed, Viewer

MOST_CONNECTIONS = 800
"""Fewer than the descriptors that a process mostly has; half-sent requests hold theirs for 5 s."""
SECONDS_TO_FINISH = 2


def serve(bound: socket.socket, viewed: Viewed, ready: Callable[[], None]) -> None:
    """Serve `viewed`; `ready` is called once requests are answered."""
    server = Server(
        lambda: EarlyAnswers(Viewer(viewed).application()),
        ready,
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
        factory=True,
        lifespan="on",
    )
    server.run(sockets=[bound])
