"""A deterministic OpenAI-compatible model server: it says what a script says, and counts what is paid.

    async with serving(ScriptedModel(Script(conversations=(terminal_turns(3),)))) as url: …
    python -m clotho.testing.scripted_model script.json --port 8100

`POST /v1/chat/completions` answers, `GET /v1/models` lists, `GET /calls` counts by Idempotency-Key.
"""

import argparse
import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

import uvicorn
from pydantic import BaseModel, JsonValue, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from clotho.identifiers.ids import job_key
from clotho.listeners.listening import listen
from clotho.models.messages import ChatMessage
from clotho.testing.script import Fault, Policy, Question, Script, ScriptedTurn
from clotho.testing.shared_speed import SharedSpeed

CHARS_PER_TOKEN = 4
MODEL_NAME = "scripted"


class _Body(BaseModel):
    model: str
    messages: tuple[ChatMessage, ...]
    seed: int | None = None


class PaidCalls:
    """Counts of requests and of completed answers by key. With a `log`, answers outlive the process."""

    def __init__(self, log: Path | None = None) -> None:
        self.requests: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self._log = None
        if log is not None:
            # line by line: a SIGKILL loses no answer that was counted
            self._log = log.open("a+", buffering=1)
            self._log.seek(0)
            self.completed.update(json.loads(line) for line in self._log)

    def request(self, key: str) -> None:
        self.requests[key] += 1

    def complete(self, key: str) -> None:
        self.completed[key] += 1
        if self._log is not None:
            self._log.write(json.dumps(key) + "\n")

    @property
    def paid_twice(self) -> dict[str, int]:
        return {key: count for key, count in self.completed.items() if count > 1}


class ScriptedModel:
    """The server's application. `script` sets latency and faults, and the turns unless `policy` decides them."""

    def __init__(self, script: Script, policy: Policy | None = None, log: Path | None = None) -> None:
        self.calls = PaidCalls(log)
        self._script = script
        self._free = asyncio.Semaphore(script.most_at_once)
        self._in_work = SharedSpeed(script.speed)
        self._policy = policy or script.answer
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/calls", self._counts),
            ]
        )

    async def _complete(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key", "")
        self.calls.request(key)
        number = self.calls.requests.total()
        fault = self._fault(number, self.calls.requests[key])
        if fault is not None:
            return await _commit(fault, request)
        try:
            body = _Body.model_validate_json(await request.body())
        except ValidationError as invalid:
            return _error(400, str(invalid))
        question = Question(key=key, model=body.model, messages=body.messages, seed=body.seed)
        turn = self._policy(question)
        seconds = self._script.seconds(key)
        async with self._free:
            await self._in_work.work(seconds)
        # not counted as paid: a model server stops sampling for a client that has left
        if await request.is_disconnected():
            return Response(status_code=499)
        self.calls.complete(key)
        sampled = int(seconds * self._script.tokens_per_second)
        completion = _completion(question, turn, sampled)
        return JSONResponse(completion, headers={"x-request-id": f"request-{number}"})

    def _fault(self, number: int, attempt: int) -> Fault | None:
        return next((fault for fault in self._script.faults if fault.applies(number, attempt)), None)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL_NAME, "object": "model"}]})

    async def _counts(self, request: Request) -> Response:
        return JSONResponse({"requests": dict(self.calls.requests), "completed": dict(self.calls.completed)})


class Dropped(Response):
    """The connection breaks in the middle of the answer, as that of a server that dies."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"1000"), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"choices": [', "more_body": True})


async def _commit(fault: Fault, request: Request) -> Response:
    match fault.kind:
        case "status":
            return _error(fault.status, fault.message, fault.headers)
        case "drop":
            return Dropped()
        case "garbage":
            return Response("<html>Bad gateway</html>", media_type="text/html")
        case "empty_choices":
            return JSONResponse({"id": "empty", "object": "chat.completion", "choices": []})
        case "hang":
            while (await request.receive())["type"] != "http.disconnect":
                pass
            return Response(status_code=499)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "type": "scripted", "code": None}}, status, headers)


def _completion(question: Question, turn: ScriptedTurn, sampled_tokens: int) -> JsonValue:
    """The answer; `sampled_tokens` is 0 where they are counted from its text."""
    ids = (f"call_{job_key(question.key, question.turn, index)[:24]}" for index in count())
    message = turn.message(ids).wire()
    prompt_tokens = sum(_tokens(asked.wire()) for asked in question.messages)
    completion_tokens = sampled_tokens or _tokens(message)
    return {
        "id": f"chatcmpl-{job_key(question.key, question.turn)}",
        "object": "chat.completion",
        # no clock: the same question has the same bytes
        "created": 0,
        "model": question.model,
        "system_fingerprint": "scripted",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": turn.finish_reason or ("tool_calls" if turn.calls else "stop"),
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def _tokens(message: JsonValue) -> int:
    return 1 + len(json.dumps(message)) // CHARS_PER_TOKEN


class ModelApp(Protocol):
    """The application that answers as a model server."""

    app: Starlette


@asynccontextmanager
async def serving(model: ModelApp, port: int = 0) -> AsyncIterator[str]:
    """Serve `model` on 127.0.0.1 from a thread of its own; yields the base URL, which ends in /v1.

    Leaving breaks the connections that are open, as a server that dies does.
    """
    listener = listen("127.0.0.1", port)
    server = uvicorn.Server(_config(model))
    # uvicorn leaves signals alone outside the main thread
    thread = threading.Thread(target=server.run, args=([listener],), name="scripted-model")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        await asyncio.to_thread(thread.join)


def _config(model: ModelApp) -> uvicorn.Config:
    return uvicorn.Config(
        model.app, log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=0
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m clotho.testing.scripted_model")
    parser.add_argument("script", type=Path, help="JSON file; the schema is clotho.testing.script.Script")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default)")
    parser.add_argument(
        "--log", type=Path, help="file in which counts of completed calls outlive the process"
    )
    options = parser.parse_args()
    model = ScriptedModel(Script.model_validate_json(options.script.read_bytes()), log=options.log)
    listener = listen("127.0.0.1", options.port)
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}/v1\n")
    sys.stdout.flush()
    uvicorn.Server(_config(model)).run([listener])


if __name__ == "__main__":
    main()
