"""The forward pass against Hugging Face transformers, through every endpoint."""

import httpx
import pytest

from tests.unit.embedded_model.conftest import ReferenceCase

TOLERANCE = 1e-4


def assert_matches(ids: list[int], logprobs: list[float], case: ReferenceCase) -> None:
    assert ids == case.output_ids
    assert logprobs == pytest.approx(case.logprobs, abs=TOLERANCE)


async def test_completions(http: httpx.AsyncClient, case: ReferenceCase) -> None:
    body = {
        "prompt": case.prompt_ids,
        "max_tokens": 64,
        "temperature": 0,
        "logprobs": 0,
        "return_token_ids": True,
    }
    choice = (await http.post("/v1/completions", json=body)).json()["choices"][0]
    assert choice["prompt_token_ids"] == case.prompt_ids
    assert_matches(choice["token_ids"], choice["logprobs"]["token_logprobs"], case)
    assert choice["finish_reason"] == {"eos": "stop", "length": "length"}[case.finish]


async def test_generate(http: httpx.AsyncClient, case: ReferenceCase) -> None:
    sampling = {"max_tokens": 64, "temperature": 0, "logprobs": 0}
    body = {"token_ids": case.prompt_ids, "sampling_params": sampling}
    choice = (await http.post("/inference/v1/generate", json=body)).json()["choices"][0]
    assert_matches(choice["token_ids"], [each["logprob"] for each in choice["logprobs"]["content"]], case)


async def test_chat(http: httpx.AsyncClient, case: ReferenceCase) -> None:
    if case.messages is None:
        return
    body = {"messages": case.messages, "tools": case.tools, "max_tokens": 64, "temperature": 0}
    answer = (
        await http.post("/v1/chat/completions", json=body | {"logprobs": True, "return_token_ids": True})
    ).json()
    assert answer["prompt_token_ids"] == case.prompt_ids
    choice = answer["choices"][0]
    assert_matches(choice["token_ids"], [each["logprob"] for each in choice["logprobs"]["content"]], case)


async def test_most_likely_tokens(http: httpx.AsyncClient, case: ReferenceCase) -> None:
    for position, expected in enumerate(case.top5_first3):
        sampling = {"max_tokens": 1, "temperature": 0, "logprobs": 5}
        body = {"token_ids": case.prompt_ids + case.output_ids[:position], "sampling_params": sampling}
        content = (await http.post("/inference/v1/generate", json=body)).json()["choices"][0]["logprobs"][
            "content"
        ]
        alternatives = content[0]["top_logprobs"]
        assert [each["token_id"] for each in alternatives] == expected["ids"]
        assert [each["rank"] for each in alternatives] == [1, 2, 3, 4, 5]
        assert [each["logprob"] for each in alternatives] == pytest.approx(
            expected["logprobs"], abs=TOLERANCE
        )
