"""Tokens scored over real HTTP: the logprobs of given tokens are those with which they were sampled."""

import json

import pytest
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.embedded.model.generation import score_prompt
from clotho.embedded.model.policy import Policy
from clotho.errors import ModelRejected
from clotho.models.backend import Inference
from clotho.models.model_http import ModelHTTP
from clotho.models.scoring import PromptScores, TokenScorer
from clotho.testing.scripted_model import serving
from tests.support import PATIENCE_SECONDS


async def scored(url: str, inference: Inference, ids: list[int], top_k: int) -> PromptScores:
    http = ModelHTTP(url, timeout=PATIENCE_SECONDS)
    try:
        return await TokenScorer(http, inference).score(TINY, ids, top_k)
    finally:
        await http.aclose()


async def test_given_tokens_have_the_logprobs_that_they_were_sampled_with(
    embedded_model: EmbeddedModelServer,
) -> None:
    http = ModelHTTP(embedded_model.url, timeout=PATIENCE_SECONDS)
    prompt = Policy.load(BUNDLED).tokenizer.encode("Create a file")
    body: dict[str, JsonValue] = {
        "model": TINY,
        "prompt": list(prompt),
        "max_tokens": 12,
        "seed": 3,
        "logprobs": 0,
    }
    answer = await http.post(f"{http.root}/v1/completions", {**body, "return_token_ids": True}, 1 << 20)
    sampled = json.loads(answer)["choices"][0]
    await http.aclose()
    ids = prompt + sampled["token_ids"]
    found = await scored(embedded_model.url, Inference.TOKENS, ids, 3)
    assert (found.token_ids[0], found.logprobs[0]) == ([], [])
    assert [row[0] for row in found.token_ids[1:]] == ids[1:]
    own = [row[0] for row in found.logprobs[len(prompt) :]]
    assert own == sampled["logprobs"]["token_logprobs"]
    assert all(3 <= len(row) <= 4 and max(row) == max(row[:2]) for row in found.logprobs[1:])


class SGLangScores:
    """SGLang's answer to a request for the logprobs of its input, of the embedded policy."""

    def __init__(self) -> None:
        self._policy = Policy.load(BUNDLED)
        self.app = Starlette(routes=[Route("/generate", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        assert body["return_logprob"] and body["logprob_start_len"] == 0
        ids = body["input_ids"]
        rows = score_prompt(self._policy, ids, body["top_logprobs_num"])
        own = [[row[0].logprob if row else None, token, None] for token, row in zip(ids, rows, strict=True)]
        top = [[[each.logprob, each.token, None] for each in row[1:]] or None for row in rows]
        return JSONResponse({"meta_info": {"input_token_logprobs": own, "input_top_logprobs": top}})


@pytest.mark.parametrize("inference", [Inference.TOKENS, Inference.SGLANG])
async def test_sglang_scores_the_same(embedded_model: EmbeddedModelServer, inference: Inference) -> None:
    ids = Policy.load(BUNDLED).tokenizer.encode("Write hello to the file")
    expected = await scored(embedded_model.url, Inference.VLLM_COMPLETIONS, ids, 4)
    async with serving(SGLangScores()) as url:
        assert await scored(url, inference, ids, 4) == expected


async def test_a_server_that_gives_none_is_said_to(embedded_model: EmbeddedModelServer) -> None:
    ids = Policy.load(BUNDLED).tokenizer.encode("Write hello")
    with pytest.raises(ModelRejected, match=r"scores no tokens: .*less than or equal to 100"):
        await scored(embedded_model.url, Inference.VLLM_COMPLETIONS, ids, 1000)
    with pytest.raises(ModelRejected, match="scores no tokens"):
        await scored(embedded_model.url, Inference.SGLANG, ids, 2)
