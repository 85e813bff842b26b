"""Logprobs of a given sequence's tokens, and of the likeliest tokens at each position."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue

from clotho.errors import ModelRejected
from clotho.models.answers import ERROR_BYTES
from clotho.models.backend import Inference
from clotho.models.model_http import ModelHTTP, read_event

CANDIDATE_BYTES = 512
"""Most bytes of an answer for each candidate."""
NOTHING_SAMPLED: dict[str, JsonValue] = {"temperature": 0.0, "top_p": 1.0}


@dataclass(frozen=True)
class PromptScores:
    """Candidates of each position, the sequence's own token among them; none for the first."""

    token_ids: list[list[int]]
    logprobs: list[list[float]]


Way = Callable[[str, list[int], int], Awaitable[PromptScores | None]]


class _Candidate(BaseModel):
    logprob: float


class _ScoredChoice(BaseModel):
    prompt_logprobs: list[dict[int, _Candidate] | None] | None = None


class _ScoredCompletion(BaseModel):
    choices: list[_ScoredChoice] = []


class _InputMeta(BaseModel):
    input_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    input_top_logprobs: list[list[tuple[float, int, str | None]] | None] | None = None


class _Prefilled(BaseModel):
    meta_info: _InputMeta = _InputMeta()


class TokenScorer:
    """One model server: vLLM's /v1/completions with prompt_logprobs, or SGLang's /generate."""

    def __init__(self, http: ModelHTTP, inference: Inference) -> None:
        self._http = http
        self._ways: list[Way] = []
        if inference is not Inference.SGLANG:
            self._ways.append(self._completions)
        if inference in (Inference.SGLANG, Inference.TOKENS):
            self._ways.append(self._prefilled)

    async def score(self, model: str, token_ids: list[int], top_k: int) -> PromptScores:
        """Score the `top_k` candidates at each position. Raises ModelRejected if the server can't."""
        refusals = []
        for way in self._ways:
            try:
                async with self._http.errors():
                    found = await way(model, token_ids, top_k)
                if found is not None:
                    self._ways = [way]
                    return found
                refusals.append("it returns no logprobs of prompts")
            except ModelRejected as refused:
                refusals.append(str(refused))
        raise ModelRejected(f"{self._http.base_url} scores no tokens: {'; '.join(dict.fromkeys(refusals))}")

    async def _completions(self, model: str, token_ids: list[int], top_k: int) -> PromptScores | None:
        # one token, as servers refuse to sample none
        body: dict[str, JsonValue] = {"model": model, "prompt": list(token_ids), "max_tokens": 1, "n": 1}
        body |= {**NOTHING_SAMPLED, "prompt_logprobs": top_k}
        answer = await self._answer("/v1/completions", body, len(token_ids) * (top_k + 1))
        choices = read_event(_ScoredCompletion, answer).choices
        rows = choices[0].prompt_logprobs if choices else None
        if rows is None:
            return None
        return PromptScores(
            token_ids=[list(row or ()) for row in rows],
            logprobs=[[each.logprob for each in (row or {}).values()] for row in rows],
        )

    async def _prefilled(self, model: str, token_ids: list[int], top_k: int) -> PromptScores | None:
        body: dict[str, JsonValue] = {
            "input_ids": list(token_ids),
            "sampling_params": {"max_new_tokens": 1, **NOTHING_SAMPLED},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": top_k,
        }
        answer = await self._answer("/generate", body, len(token_ids) * (top_k + 1))
        meta = read_event(_Prefilled, answer).meta_info
        if meta.input_top_logprobs is None or meta.input_token_logprobs is None:
            return None
        ids, logprobs = [], []
        for own, top in zip(meta.input_token_logprobs, meta.input_top_logprobs, strict=True):
            row = {token: logprob for logprob, token, _ in [own, *(top or ())] if logprob is not None}
            ids.append(list(row))
            logprobs.append(list(row.values()))
        return PromptScores(token_ids=ids, logprobs=logprobs)

    async def _answer(self, path: str, body: dict[str, JsonValue], candidates: int) -> bytes:
        most = ERROR_BYTES + CANDIDATE_BYTES * candidates
        return await self._http.post(f"{self._http.root}{path}", body, most)
