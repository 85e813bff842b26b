"""The engine of the tests behind a socket of its own, which dies at a request, and answers again later."""

import socket
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Literal

CHUNK_BYTES = 1 << 16


class DyingEngine(socketserver.ThreadingUnixStreamServer):
    """Takes no request that it is to die at `before`, and answers none that it is to die `after`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: Path, engine: str) -> None:
        super().__init__(str(address), _Connection)
        self.address = f"unix://{address}"
        self.engine = engine.removeprefix("unix://")
        self.dead = False
        self.mark: bytes | None = None
        self.when: Literal["before", "after"] = "before"

    def die_at(self, request: str, when: Literal["before", "after"]) -> None:
        """Die at the first request whose address contains `request`."""
        self.mark, self.when = request.encode(), when

    def is_last(self, content: bytes) -> bool:
        first, _, _ = content.partition(b"\r\n")
        return self.mark is not None and first.endswith(b"HTTP/1.1") and self.mark in first


class _Connection(socketserver.BaseRequestHandler):
    server: DyingEngine
    request: socket.socket

    def handle(self) -> None:
        if self.server.dead:
            return
        self.ends = False
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self.server.engine)
            answers = Thread(target=self._answer, args=(engine,))
            answers.start()
            with suppress(OSError):
                self._ask(engine)
            with suppress(OSError):
                engine.shutdown(socket.SHUT_RDWR)
            answers.join()

    def _ask(self, engine: socket.socket) -> None:
        while (content := self.request.recv(CHUNK_BYTES)) and not self.server.dead:
            if self.server.is_last(content):
                self.server.mark = None
                self.ends = True
                if self.server.when == "before":
                    self.server.dead = True
                    return
            engine.sendall(content)

    def _answer(self, engine: socket.socket) -> None:
        with suppress(OSError):
            while content := engine.recv(CHUNK_BYTES):
                if self.ends:
                    self.server.dead = True
                if self.server.dead:
                    break
                self.request.sendall(content)
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)


@contextmanager
def dying_engine(address: Path, engine: str) -> Iterator[DyingEngine]:
    with DyingEngine(address, engine) as dying:
        thread = Thread(target=dying.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield dying
        finally:
            dying.shutdown()
            thread.join()
