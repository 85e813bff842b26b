"""/inference/v1/generate: token ids in, token ids out."""

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from clotho.embedded.model.generation import Likelihood, Step
from clotho.embedded.model.http.reading import BodyReader
from clotho.embedded.model.http.requests import GenerateRequest
from clotho.embedded.model.http.responses import (
    Generated,
    GeneratedChoice,
    TokenAlternative,
    TokenLogprob,
    TokenLogprobs,
)
from clotho.embedded.model.http.serving import (
    Admitted,
    Serving,
    ids_of,
    versions_of,
)


class GenerateEndpoint:
    def __init__(self, serving: Serving, reader: BodyReader) -> None:
        self._serving = serving
        self._reader = reader

    async def answer(self, request: Request) -> Response:
        asked = await self._reader.read(request, GenerateRequest)
        self._serving.check_model(asked.model)
        sampling = asked.sampling_params
        admitted = self._serving.admit(asked.token_ids, sampling, sampling.max_tokens, sampling.logprobs or 0)
        answer = _GenerateAnswer(self._serving, asked, admitted)
        return await self._serving.respond(request, admitted, answer, stream=bool(asked.stream))


class _GenerateAnswer:
    """The answer to one generate request, whole or in chunks."""

    def __init__(self, serving: Serving, asked: GenerateRequest, admitted: Admitted) -> None:
        self._serving = serving
        self._asked = asked
        self._admitted = admitted
        self._id = asked.request_id or f"generate-{uuid.uuid4().hex}"

    def whole(self, steps: Sequence[Step]) -> Generated:
        return self._generated(self._choice(steps, steps), usage_of=len(steps))

    async def chunks(self) -> AsyncGenerator[Generated]:
        steps: list[Step] = []
        async with aclosing(self._serving.steps(self._admitted)) as running:
            async for step in running:
                steps.append(step)
                yield self._generated(self._choice([step], steps))
        if self._asked.wants_usage:
            yield self._generated(usage_of=len(steps))

    def _choice(self, steps: Sequence[Step], all_steps: Sequence[Step]) -> GeneratedChoice:
        ending = steps[-1].ending
        return GeneratedChoice(
            token_ids=ids_of(steps),
            logprobs=self._logprobs(steps),
            finish_reason=ending.reason if ending else None,
            stop_reason=ending.matched if ending else None,
            weight_versions=versions_of(all_steps) if ending else None,
        )

    def _generated(self, *choices: GeneratedChoice, usage_of: int | None = None) -> Generated:
        return Generated(
            request_id=self._id,
            model=self._serving.model_name,
            created=self._admitted.created,
            seed=self._admitted.parameters.seed,
            choices=list(choices),
            usage=None if usage_of is None else self._admitted.usage(usage_of),
        )

    def _logprobs(self, steps: Sequence[Step]) -> TokenLogprobs | None:
        if self._asked.sampling_params.logprobs is None:
            return None
        return TokenLogprobs(content=[_token_logprob(step) for step in steps])


def _token_logprob(step: Step) -> TokenLogprob:
    sampled = _alternative(step.sampled)
    others = [_alternative(each) for each in step.alternatives if each.token != sampled.token_id]
    return TokenLogprob(**sampled.model_dump(), top_logprobs=[sampled, *others])


def _alternative(likelihood: Likelihood) -> TokenAlternative:
    return TokenAlternative(token_id=likelihood.token, logprob=likelihood.logprob, rank=likelihood.rank)
