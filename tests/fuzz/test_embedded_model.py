"""The embedded model server under any requests: it answers each with a reason, soon, and goes on sampling."""

import itertools

import httpx

from clotho.embedded.model import EmbeddedModelServer
from tests.fuzz.requests import Endpoint, RawRequest, answer_to, request
from tests.fuzz.runner import Fuzzer
from tests.support import PATIENCE_SECONDS

EXPECTED = {None, 200, 400, 403, 404, 405, 408, 413, 501}
CHECKED_EVERY = 25
SAMPLING = {
    "max_tokens": 3,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "seed": 7,
    "stop": ["x"],
}
TOOL = {
    "type": "function",
    "function": {"name": "terminal", "parameters": {"type": "object", "properties": {}}},
}
MESSAGES = [
    {"role": "system", "content": "a"},
    {"role": "user", "content": [{"type": "text", "text": "a"}]},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a": [1]}'}}]},
    {"role": "tool", "content": "b", "tool_call_id": "1"},
]
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
ENDPOINTS = [
    Endpoint("POST", "/v1/chat/completions", {"messages": MESSAGES, "tools": [TOOL], **SAMPLING}),
    Endpoint(
        "POST", "/v1/chat/completions", {"messages": MESSAGES[:2], **SAMPLING, **STREAM, "logprobs": True}
    ),
    Endpoint("POST", "/v1/completions", {"prompt": "hello", **SAMPLING, "logprobs": 2}),
    Endpoint("POST", "/v1/completions", {"prompt": [5, 6], **SAMPLING, **STREAM, "return_token_ids": True}),
    Endpoint("POST", "/inference/v1/generate", {"token_ids": [5], "sampling_params": SAMPLING, **STREAM}),
    Endpoint("POST", "/collective_rpc", {"method": "reload_weights"}),
    Endpoint("GET", "/v1/models"),
    Endpoint("GET", "/health"),
    Endpoint("DELETE", "/v1/models", {}),
]


async def test_any_request_is_answered_with_a_reason(
    embedded_model: EmbeddedModelServer, fuzzer: Fuzzer
) -> None:
    async with httpx.AsyncClient(base_url=embedded_model.url, timeout=PATIENCE_SECONDS) as client:
        checked = itertools.count(1)

        async def samples() -> None:
            asked = {"prompt": [5], "max_tokens": 1, "seed": 7, "return_token_ids": True}
            answer = await client.post("/v1/completions", json=asked)
            assert answer.json()["choices"][0]["token_ids"] == first

        async def check(case: RawRequest) -> None:
            status = await answer_to(case, int(embedded_model.url.rpartition(":")[2]))
            assert status in EXPECTED, status
            if next(checked) % CHECKED_EVERY == 0:
                await samples()

        asked = {"prompt": [5], "max_tokens": 1, "seed": 7, "return_token_ids": True}
        first = (await client.post("/v1/completions", json=asked)).json()["choices"][0]["token_ids"]
        assert await fuzzer.run_async(lambda random: request(random, ENDPOINTS), check) > 0
        await samples()
        assert "Traceback" not in embedded_model.process.output
