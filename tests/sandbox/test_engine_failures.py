"""What an engine answers, or doesn't: which of its failures pass, and which stay."""

import json
import socketserver
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.sandbox.containers import engine as engine_module
from clotho.sandbox.containers.engine import Engine

SLOW_SECONDS = 0.6


class _Served(socketserver.ThreadingUnixStreamServer):
    """An engine without images, whose registry fails as `reported` says, and that is slow to commit."""

    daemon_threads = True
    reported = ""

    def get_request(self) -> tuple[Any, Any]:
        return super().get_request()[0], ("here", 0)


class _Handler(BaseHTTPRequestHandler):
    server: _Served

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
        if "/images/create" in self.path:
            self._answer(200, {"error": self.server.reported})
        else:
            time.sleep(SLOW_SECONDS)
            self._answer(201, {"Id": "made"})

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
def served(tmp_path: Path) -> Iterator[_Served]:
    with _Served(str(tmp_path / "engine.sock"), _Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def engine(served: _Served) -> Engine:
    return Engine(f"unix://{served.server_address!s}")


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("toomanyrequests: You have reached your pull rate limit", SandboxUnavailable),
        ("write /var/lib/docker/tmp/x: no space left on device", SandboxUnavailable),
        (
            "Get https://example.org/v2/: net/http: request canceled: Client.Timeout exceeded",
            SandboxUnavailable,
        ),
        ("denied: connection reset by peer", SandboxUnavailable),
        ("received unexpected HTTP status: 503 Service Unavailable", SandboxUnavailable),
        ("manifest for example.org/x:latest not found: manifest unknown", InvalidInput),
        ("pull access denied for x, repository does not exist", InvalidInput),
    ],
)
def test_what_a_pull_reports_while_it_runs(
    engine: Engine, served: _Served, reported: str, expected: type[Exception]
) -> None:
    served.reported = reported
    with pytest.raises(expected) as raised:
        engine.image("example.org/x")
    assert reported[-20:] in str(raised.value)


def test_keeping_what_a_container_wrote_may_take_longer_than_other_requests(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "TIMEOUT_SECONDS", SLOW_SECONDS / 3)
    assert engine.changes("container") == ["/opt"]
    engine.commit("container", "localhost/left", "label")
