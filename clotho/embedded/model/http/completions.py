"""/v1/completions: text or token ids in, text out."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from clotho.embedded.model.generation import Likelihood, Step
from clotho.embedded.model.http.reading import BodyReader
from clotho.embedded.model.http.refusals import Refusal
from clotho.embedded.model.http.requests import DEFAULT_MAX_TOKENS, CompletionRequest
from clotho.embedded.model.http.responses import Candidate, Completion, CompletionChoice, CompletionLogprobs
from clotho.embedded.model.http.serving import (
    Admitted,
    Serving,
    ids_of,
    text_of,
    versions_of,
)
from clotho.embedded.model.scoring import score_prompt

Scored = list[tuple[Likelihood, ...]] | None


class CompletionEndpoint:
    def __init__(self, serving: Serving, reader: BodyReader) -> None:
        self._serving = serving
        self._reader = reader

    async def answer(self, request: Request) -> Response:
        asked = await self._reader.read(request, CompletionRequest)
        self._serving.check_model(asked.model)
        admitted = self._serving.admit(
            await self._prompt(asked), asked, asked.max_tokens or DEFAULT_MAX_TOKENS, asked.logprobs or 0
        )
        answer = _CompletionAnswer(self._serving, asked, admitted, await self._scored(asked, admitted))
        return await self._serving.respond(request, admitted, answer, stream=bool(asked.stream))

    async def _scored(self, asked: CompletionRequest, admitted: Admitted) -> Scored:
        if asked.prompt_logprobs is None:
            return None
        if asked.stream:
            raise Refusal(400, "prompt_logprobs are not streamed.", param="prompt_logprobs")
        return await asyncio.to_thread(
            score_prompt, self._serving.policy, admitted.prompt, asked.prompt_logprobs
        )

    async def _prompt(self, asked: CompletionRequest) -> list[int]:
        prompt = asked.prompt
        if isinstance(prompt, str):
            return await self._serving.tokenized(lambda: self._serving.encoded(prompt))
        return prompt


class _CompletionAnswer:
    """The answer to one completion request, whole or in chunks."""

    def __init__(
        self, serving: Serving, asked: CompletionRequest, admitted: Admitted, scored: Scored
    ) -> None:
        self._serving = serving
        self._asked = asked
        self._admitted = admitted
        self._scored = scored
        self._id = f"cmpl-{uuid.uuid4().hex}"

    def whole(self, steps: Sequence[Step]) -> Completion:
        return self._completion(self._choice(steps, steps, text_offset=0), usage_of=len(steps))

    async def chunks(self) -> AsyncGenerator[Completion]:
        steps: list[Step] = []
        text_offset = 0
        async with aclosing(self._serving.steps(self._admitted)) as running:
            async for step in running:
                steps.append(step)
                yield self._completion(self._choice([step], steps, text_offset))
                text_offset += len(step.text)
        if self._asked.wants_usage:
            yield self._completion(usage_of=len(steps))

    def _choice(self, steps: Sequence[Step], all_steps: Sequence[Step], text_offset: int) -> CompletionChoice:
        """`steps`, the last of `all_steps`, which is what there is of the generation."""
        ending = steps[-1].ending
        with_ids = bool(self._asked.return_token_ids)
        return CompletionChoice(
            text=text_of(steps),
            logprobs=self._logprobs(steps, text_offset),
            finish_reason=ending.reason if ending else None,
            stop_reason=ending.matched if ending else None,
            token_ids=ids_of(steps) if with_ids else None,
            prompt_token_ids=self._admitted.prompt if with_ids and len(all_steps) == len(steps) else None,
            prompt_logprobs=self._prompt_logprobs(),
            weight_versions=versions_of(all_steps) if ending else None,
        )

    def _completion(self, *choices: CompletionChoice, usage_of: int | None = None) -> Completion:
        return Completion(
            id=self._id,
            created=self._admitted.created,
            model=self._serving.model_name,
            system_fingerprint=self._serving.policy.version,
            seed=self._admitted.parameters.seed,
            choices=list(choices),
            usage=None if usage_of is None else self._admitted.usage(usage_of),
        )

    def _logprobs(self, steps: Sequence[Step], text_offset: int) -> CompletionLogprobs | None:
        if self._asked.logprobs is None:
            return None
        offsets = [text_offset + len(text_of(steps[:index])) for index in range(len(steps))]
        return CompletionLogprobs(
            text_offset=offsets,
            token_logprobs=[step.sampled.logprob for step in steps],
            tokens=[self._named(step.sampled) for step in steps],
            top_logprobs=[
                {self._named(each): each.logprob for each in (step.sampled, *step.alternatives)}
                for step in steps
            ],
        )

    def _prompt_logprobs(self) -> list[dict[int, Candidate] | None] | None:
        if self._scored is None:
            return None
        text_of_token = self._serving.policy.tokenizer.text_of
        rows = [
            {
                each.token: Candidate(
                    logprob=each.logprob, rank=each.rank, decoded_token=text_of_token(each.token)
                )
                for each in row
            }
            for row in self._scored
        ]
        return [row or None for row in rows]

    def _named(self, likelihood: Likelihood) -> str:
        if self._asked.return_tokens_as_token_ids:
            return f"token_id:{likelihood.token}"
        return self._serving.policy.tokenizer.text_of(likelihood.token)
