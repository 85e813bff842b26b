"""Requests to the embedded model server that cost it more than they should, or that it can't make sense of."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from clotho.embedded.model import EmbeddedModelServer
from tests.processor_time import processor_seconds
from tests.support import PATIENCE_SECONDS

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
USER = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "terminal", "parameters": {"a": "b"}}}
QUICK = 10.0
"""Seconds of the server's work; each of these took five or more, or grows with the square of its size."""


@pytest.fixture
async def http(embedded_model: EmbeddedModelServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=embedded_model.url, timeout=PATIENCE_SECONDS) as client:
        yield client
        assert (await client.get("/health")).json()["status"] == "ok"


def called_with(arguments: str) -> dict[str, Any]:
    call = {"function": {"name": "terminal", "arguments": arguments}}
    return {"messages": [*USER, {"role": "assistant", "tool_calls": [call]}], "max_tokens": 1}


@pytest.mark.attack("listeners", "arguments of a tool call that no JSON parser or encoder takes")
@pytest.mark.parametrize(
    "arguments", ["[" * 800, "[" * 100_000, '"\\ud800"', '{"\\udc00": 1}', "9" * 900, "1e999", "NaN", "\0"]
)
async def test_arguments_are_no_reason_to_fail(http: httpx.AsyncClient, arguments: str) -> None:
    answer = await http.post(CHAT, json=called_with(arguments))
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.attack("listeners", "prompts of megabytes, for a context of 1,024 tokens")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": "ab " * 2_000_000}),
        (COMPLETIONS, {"prompt": " " * 2_000_000}),
        (COMPLETIONS, {"prompt": [1] * 1_000_000}),
        (GENERATE, {"token_ids": [1] * 1_000_000}),
        (CHAT, {"messages": [{"role": "user", "content": "a" * 5_000_000}]}),
        (CHAT, {"messages": USER * 100_000}),
        (CHAT, {"messages": USER, "tools": [TOOL] * 50_000}),
        (CHAT, {"messages": [*USER, {"role": "user", "content": [{"type": "text", "text": "a"}] * 100_000}]}),
        (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": "x" * 5_000_000}}]}),
        (COMPLETIONS, {"prompt": "x" * 20_000_000}),
    ],
    ids=["words", "spaces", "ids", "tokens", "content", "messages", "tools", "parts", "a name", "20 MB"],
)
async def test_a_prompt_that_is_far_too_long_is_an_overflow_at_once(
    http: httpx.AsyncClient, embedded_model: EmbeddedModelServer, path: str, body: dict[str, Any]
) -> None:
    assert embedded_model.pid is not None
    before = processor_seconds(embedded_model.pid)
    answer = await http.post(path, content=json.dumps(body))
    assert processor_seconds(embedded_model.pid) - before < QUICK
    assert answer.status_code in (400, 413)
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.attack("listeners", "stop strings that are looked for again with every token")
@pytest.mark.parametrize("stop", [["x" * n for n in range(1, 500)], ["e" * 100_000 + "x"], ["e" * 501]])
async def test_stop_strings_are_bounded(http: httpx.AsyncClient, stop: list[str]) -> None:
    answer = await http.post(COMPLETIONS, json={"prompt": "e", "stop": stop})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stop")


@pytest.mark.attack("listeners", "an id that is repeated in every chunk of an answer")
async def test_ids_and_names_are_not_echoed_at_length(http: httpx.AsyncClient) -> None:
    long = "x" * 1_000_000
    for path, body in (
        (GENERATE, {"token_ids": [1], "request_id": long}),
        (COMPLETIONS, {"prompt": "a", "model": long}),
        (COMPLETIONS, {"prompt": "a", "logit_bias": {long: 1}}),
        (f"/{long[:20_000]}", {}),
    ):
        answer = await http.post(path, json=body)
        assert answer.status_code in (400, 404)
        assert len(answer.text) < 2_000


@pytest.mark.attack("listeners", "a web page that asks the embedded model server")
async def test_the_model_server_answers_no_web_page(http: httpx.AsyncClient) -> None:
    for headers in (
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
    ):
        for method, path in (("POST", "/collective_rpc"), ("POST", COMPLETIONS), ("GET", "/v1/models")):
            answer = await http.request(method, path, headers=headers, json={"method": "reload_weights"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "refused")
