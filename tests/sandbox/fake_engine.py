"""A container engine for tests, which answers as they say: to what a real one can't be brought."""

import json
import socketserver
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

SLOW_SECONDS = 0.6


class ServedEngine(socketserver.ThreadingUnixStreamServer):
    """An engine without images, whose registry fails as `reported` says, and that is slow to commit."""

    daemon_threads = True
    request_queue_size = 128
    reported = ""

    def __init__(self, address: str) -> None:
        super().__init__(address, _Handler)
        self.answers = Event()
        """Unset: it takes requests to pull, to build and to remove, and answers none."""
        self.answers.set()
        self.slow_requests: list[str] = []

    def get_request(self) -> tuple[Any, Any]:
        return super().get_request()[0], ("here", 0)


class _Handler(BaseHTTPRequestHandler):
    server: ServedEngine

    def do_GET(self) -> None:
        if self.path.endswith("/version"):
            self._answer(200, {"ApiVersion": "1.43"})
        elif self.path.endswith("/changes"):
            time.sleep(SLOW_SECONDS)
            self._answer(200, [{"Path": "/opt", "Kind": 0}])
        else:
            self._answer(404, {"message": "no such image"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/images/create" in self.path or "/build" in self.path:
            self._wait()
            self._answer(200, {"error": self.server.reported})
        else:
            time.sleep(SLOW_SECONDS)
            self._answer(201, {"Id": "made"})

    def do_DELETE(self) -> None:
        self._wait()
        self._answer(404, {"message": "no such container"})

    def _wait(self) -> None:
        self.server.slow_requests.append(self.path)
        self.server.answers.wait()

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedEngine]:
    with ServedEngine(str(tmp_path / "engine.sock")) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.answers.set()
        server.shutdown()
        thread.join()
