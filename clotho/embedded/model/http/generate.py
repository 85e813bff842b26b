"""/inference/v1/generate: token ids in, token ids out."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from clotho.embedded.model.generation import Likelihood, Step
from clotho.embedded.model.http.requests import GenerateRequest
from clotho.embedded.model.http.serving import Answer, Json, Serving, ending_of, ids_of


async def generate(serving: Serving, request: Request) -> Response:
    asked = await serving.read(request, GenerateRequest)
    sampling = asked.sampling_params
    parameters = serving.admit(asked.token_ids, sampling, sampling.max_tokens, sampling.logprobs or 0)
    return await _Generated(serving, asked, asked.token_ids, parameters).respond(request)


class _Generated(Answer[GenerateRequest]):
    def identity(self) -> Json:
        return {"request_id": self.asked.request_id or f"generate-{self.id}", "output_mode": "tokens"}

    def choice(self, steps: Sequence[Step], all_steps: Sequence[Step]) -> Json:
        with_logprobs = self.asked.sampling_params.logprobs is not None
        logprobs = {"content": [_logprob(step) for step in steps]} if with_logprobs else None
        return {**ending_of(steps, all_steps), "token_ids": ids_of(steps), "logprobs": logprobs}


def _logprob(step: Step) -> Json:
    sampled = _described(step.sampled)
    others = [_described(each) for each in step.alternatives if each.token != step.sampled.token]
    return {**sampled, "top_logprobs": [sampled, *others]}


def _described(likelihood: Likelihood) -> Json:
    return {"token_id": likelihood.token, "logprob": likelihood.logprob, "rank": likelihood.rank}
