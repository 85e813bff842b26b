"""/v1/chat/completions, as the openai package sees it."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from tests.unit.embedded_model.conftest import Json

ECHO = {"command": "echo -n 'hello' > ~/a.txt"}


async def test_tool_call(openai: AsyncOpenAI, model: str, task: list[Any], terminal_tool: Any) -> None:
    answer: Any = await openai.chat.completions.create(
        model=model, messages=task, tools=[terminal_tool], tool_choice="auto", temperature=0
    )
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.role, choice.message.content) == (
        "tool_calls",
        "assistant",
        None,
    )
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == (
        "function",
        "terminal",
        ECHO,
    )
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.system_fingerprint == choice.weight_versions[0]["version"]
    assert choice.weight_versions[0]["start"] == 0
    assert choice.weight_versions[0]["end"] == answer.usage.completion_tokens


async def test_conversation_to_its_end(
    openai: AsyncOpenAI, model: str, task: list[Any], terminal_tool: Any
) -> None:
    async def turn(messages: list[Any]) -> Any:
        answer: Any = await openai.chat.completions.create(
            model=model, messages=messages, tools=[terminal_tool], temperature=0
        )
        return answer.choices[0]

    first = await turn(task)
    call = first.message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"output": "", "exit_code": 0}'}
    second = await turn([*task, first.message.model_dump(), result])
    assert second.finish_reason == "stop"
    assert second.message.tool_calls is None
    assert "~/a.txt" in second.message.content


async def test_ids_of_calls_repeat_with_the_conversation_only(
    openai: AsyncOpenAI, model: str, task: list[Any], terminal_tool: Any
) -> None:
    async def call_id(messages: list[Any]) -> str:
        answer: Any = await openai.chat.completions.create(
            model=model, messages=messages, tools=[terminal_tool], temperature=0
        )
        return str(answer.choices[0].message.tool_calls[0].id)

    other = [{"role": "system", "content": "Be brief."}, *task]
    assert await call_id(task) == await call_id(task) != await call_id(other)


@pytest.mark.parametrize("tools", [None, "none"])
async def test_calls_stay_text_without_tools(
    openai: AsyncOpenAI, model: str, task: list[Any], terminal_tool: Any, tools: str | None
) -> None:
    offered: Any = {"tools": [terminal_tool], "tool_choice": "none"} if tools else {}
    answer: Any = await openai.chat.completions.create(model=model, messages=task, temperature=0, **offered)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content.startswith("<tool_call>\n{")
    assert answer.choices[0].message.tool_calls is None


async def test_logprobs(openai: AsyncOpenAI, model: str, task: list[Any]) -> None:
    answer: Any = await openai.chat.completions.create(
        model=model, messages=task, max_completion_tokens=5, logprobs=True, top_logprobs=3, temperature=0
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens == 5
    assert "".join(each.token for each in content) == answer.choices[0].message.content
    for each in content:
        assert bytes(each.bytes).decode() == each.token
        assert [other.logprob for other in each.top_logprobs] == sorted(
            (other.logprob for other in each.top_logprobs), reverse=True
        )
        assert (each.top_logprobs[0].token, each.top_logprobs[0].logprob) == (each.token, each.logprob)


@pytest.mark.parametrize("with_tools", [True, False])
@pytest.mark.parametrize("temperature", [0, 1])
async def test_stream_adds_up_to_the_whole_answer(
    openai: AsyncOpenAI, model: str, task: list[Any], terminal_tool: Any, with_tools: bool, temperature: float
) -> None:
    asked: Any = {
        "model": model,
        "messages": task,
        "temperature": temperature,
        "seed": 5,
        "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }
    if with_tools:
        asked["tools"] = [terminal_tool]
    whole: Any = await openai.chat.completions.create(**asked)
    content, usage = "", None
    calls: list[Any] = []
    ids: list[int] = []
    logprobs: list[Any] = []
    finish_reasons: list[str] = []
    stream: Any = await openai.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            calls += choice.delta.tool_calls or []
            ids += choice.token_ids or []
            logprobs += choice.logprobs.content if choice.logprobs else []
            finish_reasons += [choice.finish_reason] if choice.finish_reason else []
    expected = whole.choices[0]
    assert content == (expected.message.content or "")
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        (call.id, call.function.name, call.function.arguments) for call in expected.message.tool_calls or []
    ]
    assert ids == expected.token_ids
    assert logprobs == expected.logprobs.content
    assert finish_reasons == [expected.finish_reason]
    assert usage == whole.usage


async def test_stream_of_tokens_in_the_shape_of_vllm(
    http: httpx.AsyncClient, model: str, task: list[Any], terminal_tool: Any
) -> None:
    body = {
        "model": model,
        "messages": task,
        "tools": [terminal_tool],
        "temperature": 0,
        "return_token_ids": True,
    }
    async with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in response.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert chunks[0]["prompt_token_ids"][:2] == [1, 565]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(len(chunk["choices"][0]["token_ids"]) == 1 for chunk in chunks[1:])
    assert all(chunk["choices"][0]["delta"] == {} for chunk in chunks[1:-1])
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["choices"][0]["token_ids"] == [2]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_end_of_sequence_is_a_token_but_not_text(http: httpx.AsyncClient, task: list[Any]) -> None:
    body = {"messages": task, "temperature": 0, "logprobs": True, "return_token_ids": True}
    answer = (await http.post("/v1/chat/completions", json=body)).json()
    choice = answer["choices"][0]
    assert choice["token_ids"][-1] == 2
    assert choice["logprobs"]["content"][-1]["token"] == "<|im_end|>"
    assert not choice["message"]["content"].endswith("<|im_end|>")
    assert choice["stop_reason"] is None


async def test_messages_in_parts_null_content_and_developer_role(
    http: httpx.AsyncClient, terminal_tool: Any
) -> None:
    def body(instruction: Any, request: Any, content: str | None) -> Json:
        call = {"type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
        history = [
            instruction,
            {"role": "user", "content": request},
            {"role": "assistant", "content": content, "tool_calls": [{"id": "c", **call}], "refusal": None},
            {"role": "tool", "tool_call_id": "c", "content": "a.txt"},
        ]
        return {"messages": history, "tools": [terminal_tool], "max_tokens": 1, "return_token_ids": True}

    plain = body({"role": "system", "content": "Be brief."}, "List\nfiles", "")
    parts = [{"type": "text", "text": "List"}, {"type": "text", "text": "files"}]
    other = body({"role": "developer", "content": "Be brief."}, parts, None)
    prompts = [
        (await http.post("/v1/chat/completions", json=b)).json()["prompt_token_ids"] for b in (plain, other)
    ]
    assert prompts[0] == prompts[1]


async def test_history_with_broken_arguments_and_a_tool_without_parameters(
    http: httpx.AsyncClient, task: list[Any]
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "terminal", "arguments": '{"command": '}}
    body = {
        "messages": [*task, {"role": "assistant", "content": None, "tool_calls": [call]}],
        "tools": [{"type": "function", "function": {"name": "clock"}}],
        "max_tokens": 1,
    }
    assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_unicode_survives(http: httpx.AsyncClient) -> None:
    body = {
        "messages": [{"role": "user", "content": "Write 'é 你好 🙂' \n\tthere"}],
        "max_tokens": 20,
        "seed": 1,
    }
    assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_seed_is_reported_and_reproduces_the_answer(http: httpx.AsyncClient, task: list[Any]) -> None:
    body = {"messages": task, "temperature": 2, "max_tokens": 30, "return_token_ids": True}
    first, second = [(await http.post("/v1/chat/completions", json=body)).json() for _ in range(2)]
    assert first["seed"] != second["seed"]
    again = (await http.post("/v1/chat/completions", json=body | {"seed": first["seed"]})).json()
    assert again["choices"] == first["choices"]


async def test_idempotency_key_is_accepted(openai: AsyncOpenAI, model: str, task: list[Any]) -> None:
    answer: Any = await openai.chat.completions.create(
        model=model,
        messages=task,
        max_tokens=1,
        extra_headers={"Idempotency-Key": "run/g000001/r0/turn/0000"},
    )
    assert answer.usage.completion_tokens == 1


async def test_thirty_two_conversations_at_once(
    openai: AsyncOpenAI, model: str, task: list[Any], terminal_tool: Any
) -> None:
    async def sampled(seed: int) -> list[int]:
        answer: Any = await openai.chat.completions.create(
            model=model,
            messages=task,
            tools=[terminal_tool],
            seed=seed,
            extra_body={"return_token_ids": True},
        )
        return list(answer.choices[0].token_ids)

    together = await asyncio.gather(*(sampled(seed) for seed in range(32)))
    assert len(set(map(tuple, together))) > 1
    assert [await sampled(seed) for seed in range(0, 32, 8)] == together[::8]
