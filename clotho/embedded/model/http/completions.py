"""/v1/completions: text or token ids in, text out."""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from clotho.embedded.model.generation import Likelihood, Step, score_prompt
from clotho.embedded.model.http.refusals import Refusal
from clotho.embedded.model.http.requests import DEFAULT_MAX_TOKENS, CompletionRequest
from clotho.embedded.model.http.serving import Answer, Json, Serving, ending_of, ids_of, text_of


async def complete(serving: Serving, request: Request) -> Response:
    asked = await serving.read(request, CompletionRequest)
    prompt = asked.prompt
    if isinstance(prompt, str):
        text = prompt
        prompt = await serving.tokenized(lambda: serving.encoded(text))
    parameters = serving.admit(prompt, asked, asked.max_tokens or DEFAULT_MAX_TOKENS, asked.logprobs or 0)
    answer = _Completion(serving, asked, prompt, parameters)
    if asked.prompt_logprobs is not None:
        if asked.stream:
            raise Refusal(400, "prompt_logprobs are not streamed.", param="prompt_logprobs")
        # in a thread of its own, beside the engine's: scoring only reads the weights
        rows = await asyncio.to_thread(score_prompt, serving.policy, prompt, asked.prompt_logprobs)
        answer.prompt_logprobs = [answer.candidates(row) for row in rows]
    return await answer.respond(request)


class _Completion(Answer[CompletionRequest]):
    prompt_logprobs: list[Json | None] | None = None
    """The alternatives of each token of the prompt, by token id; None for the first."""

    def identity(self) -> Json:
        object = "text_completion"
        return {"id": f"cmpl-{self.id}", "object": object, "system_fingerprint": self.policy.version}

    def choice(self, steps: Sequence[Step], all_steps: Sequence[Step]) -> Json:
        with_ids, first = bool(self.asked.return_token_ids), len(all_steps) == len(steps)
        return {
            **ending_of(steps, all_steps),
            "text": text_of(steps),
            "logprobs": self._logprobs(steps, all_steps),
            "token_ids": ids_of(steps) if with_ids else None,
            "prompt_token_ids": self.prompt if with_ids and first else None,
            "prompt_logprobs": self.prompt_logprobs,
        }

    def candidates(self, row: Sequence[Likelihood]) -> Json | None:
        text_of_token = self.policy.tokenizer.text_of
        return {
            str(each.token): {
                "logprob": each.logprob,
                "rank": each.rank,
                "decoded_token": text_of_token(each.token),
            }
            for each in row
        } or None

    def _logprobs(self, steps: Sequence[Step], all_steps: Sequence[Step]) -> Json | None:
        if self.asked.logprobs is None:
            return None
        before = len(all_steps) - len(steps)
        return {
            "text_offset": [len(text_of(all_steps[:index])) for index in range(before, len(all_steps))],
            "token_logprobs": [step.sampled.logprob for step in steps],
            "tokens": [self._token_text(step.sampled) for step in steps],
            "top_logprobs": [
                {self._token_text(each): each.logprob for each in (step.sampled, *step.alternatives)}
                for step in steps
            ],
        }

    def _token_text(self, likelihood: Likelihood) -> str:
        if self.asked.return_tokens_as_token_ids:
            return f"token_id:{likelihood.token}"
        return self.policy.tokenizer.text_of(likelihood.token)
