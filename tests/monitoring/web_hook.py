"""A web hook: an HTTP server that keeps what is sent to it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SILENT = 0
"""In place of a status: the request is never answered."""


class WebHook:
    """Answers the first requests with `failures`, later ones with 204."""

    def __init__(self, *failures: int) -> None:
        left = list(failures)
        self.refused: list[dict[str, Any]] = []
        """The body of each request that was answered with a failure, or not at all."""
        self.accepted: list[tuple[dict[str, str], dict[str, Any]]] = []
        """Headers and body of each accepted request."""
        self._closed = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status = left.pop(0) if left else 204
                if status == 204:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    hook.accepted.append((headers, body))
                else:
                    hook.refused.append(body)
                if status == SILENT:
                    hook._closed.wait()
                    return
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing is logged."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/told"

    def close(self) -> None:
        self._closed.set()
        self._http.shutdown()
        self._http.server_close()
