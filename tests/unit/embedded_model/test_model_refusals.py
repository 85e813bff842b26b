"""Requests that can't be served get the OpenAI API's error body, and the server goes on."""

from typing import Any

import httpx
import openai as openai_package
import pytest
from openai import AsyncOpenAI

from tests.unit.embedded_model.conftest import Json

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
USER: list[Any] = [{"role": "user", "content": "hello"}]

UNREADABLE_TOOL = {"type": "function", "function": {"name": "terminal", "parameters": {"properties": 5e-324}}}
"""A template that lists its properties fails."""
BAD = [
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hello"}, "messages"),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": None}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "x"}}]}]}, "messages"),
    (CHAT, {"messages": USER, "temperature": -0.1}, "temperature"),
    (CHAT, {"messages": USER, "temperature": "hot"}, "temperature"),
    (CHAT, {"messages": USER, "top_p": 0}, "top_p"),
    (CHAT, {"messages": USER, "top_p": 1.1}, "top_p"),
    (CHAT, {"messages": USER, "top_k": -2}, "top_k"),
    (CHAT, {"messages": USER, "min_p": 2}, "min_p"),
    (CHAT, {"messages": USER, "max_tokens": 0}, "max_tokens"),
    (CHAT, {"messages": USER, "max_completion_tokens": 1.5}, "max_completion_tokens"),
    (CHAT, {"messages": USER, "seed": 2**64}, "seed"),
    (CHAT, {"messages": USER, "stop": ""}, "stop"),
    (CHAT, {"messages": USER, "stop": [1]}, "stop"),
    (CHAT, {"messages": USER, "n": 2}, "n"),
    (CHAT, {"messages": USER, "presence_penalty": 0.5}, "presence_penalty"),
    (CHAT, {"messages": USER, "repetition_penalty": 1.1}, "repetition_penalty"),
    (CHAT, {"messages": USER, "logit_bias": {"5": 1}}, "logit_bias"),
    (CHAT, {"messages": USER, "stream": "yes"}, "stream"),
    (CHAT, {"messages": USER, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    (CHAT, {"messages": USER, "top_logprobs": 2}, None),
    (CHAT, {"messages": USER, "tool_choice": "required"}, "tool_choice"),
    (CHAT, {"messages": USER, "tools": [{"type": "function"}]}, "tools"),
    (CHAT, {"messages": USER, "tools": [UNREADABLE_TOOL]}, "messages"),
    (CHAT, {"messages": USER, "response_format": {"type": "json_object"}}, "response_format"),
    (CHAT, {"messages": USER, "stop_token_ids": [572]}, "stop_token_ids"),
    (COMPLETIONS, {}, "prompt"),
    (COMPLETIONS, {"prompt": ""}, "prompt"),
    (COMPLETIONS, {"prompt": []}, "prompt"),
    (COMPLETIONS, {"prompt": ["a", "b"]}, "prompt"),
    (COMPLETIONS, {"prompt": [1, "2"]}, "prompt"),
    (COMPLETIONS, {"prompt": [1, True]}, "prompt"),
    (COMPLETIONS, {"prompt": [1, 572]}, "prompt"),
    (COMPLETIONS, {"prompt": [-1]}, "prompt"),
    (COMPLETIONS, {"prompt": [2**80]}, "prompt"),
    (COMPLETIONS, {"prompt": [1], "echo": True}, "echo"),
    (COMPLETIONS, {"prompt": [1], "logprobs": -1}, "logprobs"),
    (GENERATE, {"token_ids": []}, "token_ids"),
    (GENERATE, {"token_ids": [1], "sampling_params": {"temperature": -1}}, "sampling_params"),
    (GENERATE, {"token_ids": [1], "sampling_params": {"max_tokens": 0}}, "sampling_params"),
]


def assert_error(response: httpx.Response, status: int) -> Json:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    error: Json
    (error,) = response.json().values()
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize(("path", "body", "param"), BAD, ids=lambda value: str(value)[:60])
async def test_bad_requests(http: httpx.AsyncClient, path: str, body: Json, param: str | None) -> None:
    error = assert_error(await http.post(path, json=body), 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize(
    "content", [b"", b"{nope", b"[]", b"null", b'{"prompt": NaN}', b"\xff\xfe", b"[" * 100_000]
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
async def test_bodies_that_are_no_requests(http: httpx.AsyncClient, path: str, content: bytes) -> None:
    assert_error(await http.post(path, content=content, headers={"content-type": "application/json"}), 400)


async def test_unknown_model(openai: AsyncOpenAI) -> None:
    with pytest.raises(openai_package.NotFoundError) as raised:
        await openai.chat.completions.create(model="gpt-9", messages=USER)
    assert raised.value.code == "model_not_found"
    assert "gpt-9" in raised.value.message


@pytest.mark.parametrize("length", [1024, 5000])
async def test_context_overflow(http: httpx.AsyncClient, length: int) -> None:
    for path, body in (
        (CHAT, {"messages": [{"role": "user", "content": "7" * length}]}),
        (COMPLETIONS, {"prompt": [300] * length}),
        (GENERATE, {"token_ids": [300] * length}),
    ):
        error = assert_error(await http.post(path, json=body), 400)
        assert error["code"] == "context_length_exceeded"
        assert "maximum context length is 1024 tokens" in error["message"]


async def test_overflow_of_a_stream_is_a_plain_error(openai: AsyncOpenAI, model: str) -> None:
    with pytest.raises(openai_package.BadRequestError) as raised:
        await openai.completions.create(model=model, prompt=[300] * 1024, stream=True)
    assert raised.value.code == "context_length_exceeded"


async def test_unknown_routes_and_methods(http: httpx.AsyncClient) -> None:
    assert_error(await http.get("/v1/embeddings"), 404)
    assert_error(await http.get(CHAT), 405)


async def test_models_and_health(http: httpx.AsyncClient, openai: AsyncOpenAI, model: str) -> None:
    card: Any
    (card,) = (await openai.models.list()).data
    assert (card.id, card.object, card.max_model_len) == (model, "model", 1024)
    health = (await http.get("/health")).json()
    assert (health["status"], health["model"], len(health["weight_version"])) == ("ok", model, 16)
