"""/v1/completions and /inference/v1/generate."""

import json
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from tests.unit.embedded_model.conftest import Json, ReferenceCase


async def events(http: httpx.AsyncClient, path: str, body: Json) -> list[Json]:
    async with http.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.status_code == 200
        lines = [line async for line in response.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def completion(http: httpx.AsyncClient, **body: Any) -> Json:
    response = await http.post("/v1/completions", json={"temperature": 0, "return_token_ids": True} | body)
    assert response.status_code == 200, response.text
    answer: Json = response.json()
    return answer


@pytest.fixture
def notes(reference: dict[str, ReferenceCase]) -> list[int]:
    """A prompt that is answered "The file contains: alpha"."""
    return reference["multi_turn_tool_result"].prompt_ids


async def test_text_and_its_tokens_are_the_same_prompt(openai: AsyncOpenAI, model: str) -> None:
    text: Any = await openai.completions.create(
        model=model,
        prompt="def add(a, b):",
        max_tokens=8,
        temperature=0,
        extra_body={"return_token_ids": True},
    )
    ids = text.choices[0].prompt_token_ids
    tokens: Any = await openai.completions.create(model=model, prompt=ids, max_tokens=8, temperature=0)
    assert text.object == "text_completion"
    assert tokens.choices[0].text == text.choices[0].text
    assert (text.usage.prompt_tokens, text.usage.completion_tokens) == (len(ids), 8)
    assert text.choices[0].finish_reason == "length"


async def test_logprobs(http: httpx.AsyncClient, notes: list[int]) -> None:
    choice = (await completion(http, prompt=notes, max_tokens=30, logprobs=2))["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"] + "<|im_end|>"
    offsets = [len("".join(logprobs["tokens"][:index])) for index in range(len(logprobs["tokens"]))]
    assert logprobs["text_offset"] == offsets
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert top[token] == logprob == max(top.values())
        assert len(top) == 2


async def test_tokens_named_by_their_ids(http: httpx.AsyncClient, notes: list[int]) -> None:
    choice = (
        await completion(http, prompt=notes, max_tokens=3, logprobs=0, return_tokens_as_token_ids=True)
    )["choices"][0]
    assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in choice["token_ids"]]


async def test_default_length_is_sixteen(http: httpx.AsyncClient) -> None:
    assert (await completion(http, prompt=[300], ignore_eos=True))["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("temperature", [0, 1])
async def test_completion_stream_adds_up(
    http: httpx.AsyncClient, notes: list[int], temperature: float
) -> None:
    body = {"prompt": notes, "max_tokens": 30, "logprobs": 1, "seed": 4, "temperature": temperature}
    whole = (await completion(http, **body))["choices"][0]
    chunks = await events(
        http, "/v1/completions", body | {"return_token_ids": True, "stream_options": {"include_usage": True}}
    )
    *parts, last = [chunk["choices"][0] for chunk in chunks[:-1]]
    parts.append(last)
    assert "".join(part["text"] for part in parts) == whole["text"]
    assert [token for part in parts for token in part["token_ids"]] == whole["token_ids"]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert [value for part in parts for value in part["logprobs"][name]] == whole["logprobs"][name]
    assert [part["prompt_token_ids"] for part in parts] == [notes] + [None] * (len(parts) - 1)
    assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert (last["finish_reason"], last["weight_versions"]) == (
        whole["finish_reason"],
        whole["weight_versions"],
    )
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], len(parts))


async def test_generate_stream_adds_up(http: httpx.AsyncClient, notes: list[int]) -> None:
    body = {
        "token_ids": notes,
        "sampling_params": {"max_tokens": 30, "logprobs": 1, "seed": 9},
        "request_id": "mine",
    }
    whole = (await http.post("/inference/v1/generate", json=body)).json()
    chunks = await events(http, "/inference/v1/generate", body)
    assert {chunk["request_id"] for chunk in chunks} == {whole["request_id"]} == {"mine"}
    parts = [chunk["choices"][0] for chunk in chunks]
    expected = whole["choices"][0]
    assert [token for part in parts for token in part["token_ids"]] == expected["token_ids"]
    assert [each for part in parts for each in part["logprobs"]["content"]] == expected["logprobs"]["content"]
    assert [part["weight_versions"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1]["weight_versions"] == expected["weight_versions"]
    version = expected["weight_versions"][0]
    assert (version["start"], version["end"]) == (0, len(expected["token_ids"]))


async def test_generate_reports_ranks_and_usage(http: httpx.AsyncClient) -> None:
    body = {
        "token_ids": [317],
        "sampling_params": {"max_tokens": 40, "logprobs": 2, "seed": 1, "ignore_eos": True},
    }
    answer = (await http.post("/inference/v1/generate", json=body)).json()
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 40, "total_tokens": 41}
    content = answer["choices"][0]["logprobs"]["content"]
    assert max(each["rank"] for each in content) > 2
    for each in content:
        sampled, *others = each["top_logprobs"]
        assert sampled == {name: each[name] for name in ("token_id", "logprob", "rank")}
        assert sorted(other["rank"] for other in each["top_logprobs"] if other["rank"] <= 2) == [1, 2]
        assert all(other["token_id"] != each["token_id"] for other in others)


async def test_generate_without_a_length_fills_the_context(http: httpx.AsyncClient) -> None:
    body = {"token_ids": [300] * 1000, "sampling_params": {"ignore_eos": True}}
    choice = (await http.post("/inference/v1/generate", json=body)).json()["choices"][0]
    assert (len(choice["token_ids"]), choice["finish_reason"], choice["logprobs"]) == (24, "length", None)


async def test_a_longer_length_is_cut_to_the_context(http: httpx.AsyncClient) -> None:
    answer = await completion(http, prompt=[300] * 1020, max_tokens=500, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(("stop", "text"), [("ns: al", "The file contai"), (["zz", "con"], "The file ")])
async def test_stop_strings_across_tokens(
    http: httpx.AsyncClient, notes: list[int], stop: str | list[str], text: str
) -> None:
    body = {"prompt": notes, "max_tokens": 30, "stop": stop}
    choice = (await completion(http, **body))["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (text, "stop")
    assert choice["stop_reason"] in stop
    chunks = await events(http, "/v1/completions", body | {"temperature": 0, "return_token_ids": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == choice["token_ids"]
    kept = await completion(http, **body, include_stop_str_in_output=True)
    assert kept["choices"][0]["text"] == text + choice["stop_reason"]


async def test_text_held_for_a_stop_string_that_never_comes(
    http: httpx.AsyncClient, notes: list[int]
) -> None:
    choice = (await completion(http, prompt=notes, max_tokens=30, stop=["alphabet"]))["choices"][0]
    assert choice["text"] == "The file contains: alpha"
    assert (choice["finish_reason"], choice["stop_reason"], choice["token_ids"][-1]) == ("stop", None, 2)


async def test_stop_token_is_reported_and_not_text(http: httpx.AsyncClient, notes: list[int]) -> None:
    whole = (await completion(http, prompt=notes, max_tokens=30))["choices"][0]
    stop = whole["token_ids"][4]
    choice = (await completion(http, prompt=notes, max_tokens=30, stop_token_ids=[stop]))["choices"][0]
    end = whole["token_ids"].index(stop)
    assert choice["token_ids"] == whole["token_ids"][: end + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert whole["text"].startswith(choice["text"])


async def test_end_of_sequence_can_be_put_off(http: httpx.AsyncClient, notes: list[int]) -> None:
    ending = (await completion(http, prompt=notes, max_tokens=40))["usage"]["completion_tokens"]
    least = await completion(http, prompt=notes, max_tokens=40, min_tokens=ending + 3)
    ignored = await completion(http, prompt=notes, max_tokens=40, ignore_eos=True, skip_special_tokens=False)
    assert least["usage"]["completion_tokens"] > ending + 3
    assert 2 not in least["choices"][0]["token_ids"][: ending + 3]
    assert ignored["usage"]["completion_tokens"] == 40
    assert "<|im_end|>" in ignored["choices"][0]["text"]


async def test_text_is_held_until_its_characters_are_whole(http: httpx.AsyncClient) -> None:
    body = {"prompt": [175, 256, 250], "max_tokens": 60, "temperature": 2, "seed": 3, "ignore_eos": True}
    whole = (await completion(http, **body))["choices"][0]["text"]
    chunks = await events(http, "/v1/completions", body)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole
