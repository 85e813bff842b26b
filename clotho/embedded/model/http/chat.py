"""/v1/chat/completions."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import Response

from clotho.embedded.model.generation import Likelihood, Step
from clotho.embedded.model.http.refusals import Refusal
from clotho.embedded.model.http.requests import ChatRequest
from clotho.embedded.model.http.serving import Answer, Json, Serving, ending_of, ids_of, text_of
from clotho.models.tool_call_parsers import hermes, parser

CHUNK_FIELDS = ("finish_reason", "stop_reason", "weight_versions", "logprobs", "token_ids")


async def chat(serving: Serving, request: Request) -> Response:
    asked = await serving.read(request, ChatRequest)
    prompt = await serving.tokenized(lambda: _render_prompt(serving, asked))
    max_tokens = asked.max_completion_tokens or asked.max_tokens
    parameters = serving.admit(prompt, asked, max_tokens, asked.top_logprobs or 0)
    return await _Chat(serving, asked, prompt, parameters).respond(request)


def _render_prompt(serving: Serving, asked: ChatRequest) -> list[int]:
    # None is rendered as less than a token.
    serving.check_length(len(asked.messages) + len(asked.tools or ()))
    try:
        text = serving.policy.tokenizer.render(
            [message.templated() for message in asked.messages],
            [tool.templated() for tool in asked.tools or ()],
        )
    except Exception as error:
        # A template is a program of the model's author, and fails as it pleases.
        raise Refusal(400, f"The chat template refuses these messages: {error}", param="messages") from error
    return serving.encoded(text)


class _Chat(Answer[ChatRequest]):
    def identity(self) -> Json:
        return {
            "id": f"chatcmpl-{self.id}",
            "object": "chat.completion.chunk" if self.asked.stream else "chat.completion",
            "system_fingerprint": self.policy.version,
            "prompt_token_ids": self.prompt if self.asked.return_token_ids else None,
        }

    def choice(self, steps: Sequence[Step], all_steps: Sequence[Step]) -> Json:
        content, calls = self._parse_answer(text_of(steps), ids_of(steps))
        message = {"role": "assistant", "content": content, "refusal": None, "tool_calls": calls or None}
        return self._choice(steps, all_steps, message=message, called=bool(calls))

    async def chunks(self) -> AsyncGenerator[Json]:
        yield self.body(
            {"index": 0, "delta": {"role": "assistant", "content": ""}, **dict.fromkeys(CHUNK_FIELDS)}
        )
        steps: list[Step] = []
        text, shown = "", 0
        async with aclosing(self.generation()) as running:
            async for step in running:
                steps.append(step)
                text += step.text
                # a client that has got a call as text can't take it back
                certain = _before_a_call(text) if self._parses_calls else len(text)
                content, shown, calls = text[shown:certain], max(certain, shown), list[Json]()
                if step.ending is not None:
                    whole, calls = self._parse_answer(text, ids_of(steps))
                    content += (whole or "")[shown:]
                yield self._chunk(step, steps, content, calls)
        if self.asked.wants_usage:
            yield self.body(usage_of=len(steps)) | {"prompt_token_ids": None}

    def _chunk(self, step: Step, steps: Sequence[Step], content: str, calls: Sequence[Json]) -> Json:
        delta: Json = {"content": content} if content else {}
        if calls:
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        choice = self._choice([step], steps, delta=delta, called=bool(calls))
        return self.body(choice) | {"prompt_token_ids": None}

    def _choice(
        self, steps: Sequence[Step], all_steps: Sequence[Step], *, called: bool, **said: Json
    ) -> Json:
        choice = {
            **ending_of(steps, all_steps),
            **said,
            "logprobs": self._logprobs(steps),
            "token_ids": ids_of(steps) if self.asked.return_token_ids else None,
        }
        return choice | {"finish_reason": "tool_calls"} if called else choice

    @property
    def _parses_calls(self) -> bool:
        return bool(self.asked.tools) and self.asked.tool_choice != "none"

    def _parse_answer(self, text: str, sampled: Sequence[int]) -> tuple[str | None, list[Json]]:
        if not self._parses_calls:
            return text, []
        answer = parser("hermes").parse(text)
        conversation = [*self.prompt, *sampled]
        return answer.content, [
            {
                "id": _call_id(conversation, index),
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for index, call in enumerate(answer.calls)
        ]

    def _logprobs(self, steps: Sequence[Step]) -> Json | None:
        if not self.asked.logprobs:
            return None
        return {
            "content": [
                {
                    **self._described(step.sampled),
                    "top_logprobs": [self._described(each) for each in step.alternatives],
                }
                for step in steps
            ]
        }

    def _described(self, likelihood: Likelihood) -> Json:
        tokenizer = self.policy.tokenizer
        return {
            "token": tokenizer.text_of(likelihood.token),
            "logprob": likelihood.logprob,
            "bytes": list(tokenizer.bytes_of(likelihood.token)),
        }


def _before_a_call(text: str) -> int:
    """The length of the content that may be streamed already: none of what a tool call could still claim."""
    if (at := text.find(hermes.OPENING)) >= 0:
        return at
    for length in range(min(len(hermes.OPENING) - 1, len(text)), 0, -1):
        if hermes.OPENING.startswith(text[-length:]):
            return len(text) - length
    return len(text)


def _call_id(conversation: Sequence[int], index: int) -> str:
    """Derived from the conversation, so that a repeated answer repeats its ids."""
    return f"call_{blake2b(repr((list(conversation), index)).encode(), digest_size=12).hexdigest()}"
