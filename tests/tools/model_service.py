"""A server of models as tools call them: it answers with recorded shapes, and remembers what it was asked."""

import base64
import json
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from clotho.plugins.services.settings import ModelService, ModelServices

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def completion(content: str | None, ended: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "a-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, "refusal": refusal},
                "finish_reason": ended,
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }


def images(**image: str) -> dict[str, Any]:
    return {"created": 1_760_000_000, "data": [image], "usage": {"total_tokens": 100}}


class ModelServer:
    """Answers of one kind until they are changed; `by_model` has those of single models."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body: Any = None
        self.by_model: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["content-length"])))
                named = {name.lower(): value for name, value in self.headers.items()}
                server.asked.append((self.path, named, given))
                status, body = server.answer(self.path, given)
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **server.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing is logged."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def answer(self, path: str, given: dict[str, Any]) -> tuple[int, Any]:
        if (own := self.by_model.get(given["model"])) is not None:
            return own
        if self.body is not None or self.status != 200:
            return self.status, self.body
        if path.endswith("/images/generations"):
            return 200, images(b64_json=base64.b64encode(PNG).decode())
        content = given["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        return 200, completion(f"{given['model']} says: {text}")

    def services(self, **more: Any) -> ModelServices:
        """Every model, at this server."""
        return ModelServices(
            vision=self.service("sees"),
            image=self.service("draws"),
            moa=(self.service("one"), self.service("two")),
            **more,
        )

    def service(self, model: str, **more: Any) -> ModelService:
        return ModelService(url=self.url, model=model, **more)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@cache
def shared_server() -> ModelServer:
    """The server of the conformance suite: it ends with the process."""
    return ModelServer()
