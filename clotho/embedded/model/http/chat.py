"""/v1/chat/completions."""

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import Response

from clotho.embedded.model.generation import Likelihood, Step
from clotho.embedded.model.http.reading import BodyReader
from clotho.embedded.model.http.refusals import Refusal
from clotho.embedded.model.http.requests import ChatRequest
from clotho.embedded.model.http.responses import (
    AssistantAnswer,
    ChatAlternative,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprob,
    ChatLogprobs,
    Delta,
    FinishReason,
    FunctionAnswer,
    ToolCallAnswer,
    ToolCallDelta,
)
from clotho.embedded.model.http.serving import (
    Admitted,
    Serving,
    ids_of,
    text_of,
    versions_of,
)
from clotho.embedded.model.tokenizer import Tokenizer
from clotho.models.tool_call_parsers import hermes, parser


class ChatEndpoint:
    def __init__(self, serving: Serving, reader: BodyReader) -> None:
        self._serving = serving
        self._reader = reader

    async def answer(self, request: Request) -> Response:
        asked = await self._reader.read(request, ChatRequest)
        self._serving.check_model(asked.model)
        prompt = await self._serving.tokenized(lambda: self._render(asked))
        admitted = self._serving.admit(
            prompt, asked, asked.max_completion_tokens or asked.max_tokens, asked.top_logprobs or 0
        )
        answer = _ChatAnswer(self._serving, asked, admitted)
        return await self._serving.respond(request, admitted, answer, stream=bool(asked.stream))

    def _render(self, asked: ChatRequest) -> list[int]:
        # None is rendered as less than a token.
        self._serving.check_length(len(asked.messages) + len(asked.tools or ()))
        try:
            text = self._serving.policy.tokenizer.render(
                [message.templated() for message in asked.messages],
                [tool.templated() for tool in asked.tools or ()],
            )
        except Exception as error:
            # A template is a program of the model's author, and fails as it pleases.
            raise Refusal(
                400, f"The chat template refuses these messages: {error}", param="messages"
            ) from error
        return self._serving.encoded(text)


class _ChatAnswer:
    """The answer to one chat request, whole or in chunks."""

    def __init__(self, serving: Serving, asked: ChatRequest, admitted: Admitted) -> None:
        self._serving = serving
        self._asked = asked
        self._admitted = admitted
        self._parses_calls = bool(asked.tools) and asked.tool_choice != "none"
        self._id = f"chatcmpl-{uuid.uuid4().hex}"

    def whole(self, steps: Sequence[Step]) -> ChatCompletion:
        text, ending = text_of(steps), steps[-1].ending
        assert ending is not None
        content, calls = self._parsed(text, ids_of(steps))
        return ChatCompletion(
            id=self._id,
            created=self._admitted.created,
            model=self._serving.model_name,
            system_fingerprint=self._serving.policy.version,
            seed=self._admitted.parameters.seed,
            choices=[
                ChatChoice(
                    message=AssistantAnswer(content=content, tool_calls=calls or None),
                    logprobs=self._logprobs(steps),
                    finish_reason="tool_calls" if calls else ending.reason,
                    stop_reason=ending.matched,
                    token_ids=ids_of(steps) if self._asked.return_token_ids else None,
                    weight_versions=versions_of(steps),
                )
            ],
            usage=self._admitted.usage(len(steps)),
            prompt_token_ids=self._admitted.prompt if self._asked.return_token_ids else None,
        )

    async def chunks(self) -> AsyncGenerator[ChatChunk]:
        yield self._chunk(
            ChatChunkChoice(delta=Delta(role="assistant", content="")),
            prompt_token_ids=self._admitted.prompt if self._asked.return_token_ids else None,
        )
        steps: list[Step] = []
        content = _VisibleContent(self._parses_calls)
        async with aclosing(self._serving.steps(self._admitted)) as running:
            async for step in running:
                steps.append(step)
                shown = content.push(step.text)
                if step.ending is None:
                    yield self._step_chunk(step, Delta(content=shown or None))
                    continue
                whole, calls = self._parsed(content.text, ids_of(steps))
                rest = shown + (whole or "")[content.shown :]
                deltas = [ToolCallDelta(index=at, id=c.id, function=c.function) for at, c in enumerate(calls)]
                yield self._step_chunk(
                    step,
                    Delta(content=rest or None, tool_calls=deltas or None),
                    "tool_calls" if calls else step.ending.reason,
                    steps,
                )
        if self._asked.wants_usage:
            yield self._chunk(usage_of=len(steps))

    def _step_chunk(
        self,
        step: Step,
        delta: Delta,
        finish_reason: FinishReason | None = None,
        all_steps: Sequence[Step] = (),
    ) -> ChatChunk:
        return self._chunk(
            ChatChunkChoice(
                delta=delta,
                logprobs=self._logprobs([step]),
                finish_reason=finish_reason,
                stop_reason=step.ending.matched if step.ending else None,
                token_ids=[step.sampled.token] if self._asked.return_token_ids else None,
                weight_versions=versions_of(all_steps) if finish_reason else None,
            )
        )

    def _chunk(
        self,
        *choices: ChatChunkChoice,
        usage_of: int | None = None,
        prompt_token_ids: list[int] | None = None,
    ) -> ChatChunk:
        return ChatChunk(
            id=self._id,
            created=self._admitted.created,
            model=self._serving.model_name,
            system_fingerprint=self._serving.policy.version,
            seed=self._admitted.parameters.seed,
            choices=list(choices),
            usage=None if usage_of is None else self._admitted.usage(usage_of),
            prompt_token_ids=prompt_token_ids,
        )

    def _parsed(self, text: str, sampled: Sequence[int]) -> tuple[str | None, list[ToolCallAnswer]]:
        if not self._parses_calls:
            return text, []
        answer = parser("hermes").parse(text)
        return answer.content, [
            ToolCallAnswer(
                id=_call_id([*self._admitted.prompt, *sampled], index),
                function=FunctionAnswer(name=call.function.name, arguments=call.function.arguments),
            )
            for index, call in enumerate(answer.calls)
        ]

    def _logprobs(self, steps: Sequence[Step]) -> ChatLogprobs | None:
        if not self._asked.logprobs:
            return None
        tokenizer = self._serving.policy.tokenizer
        return ChatLogprobs(
            content=[
                ChatLogprob(
                    **_described(tokenizer, step.sampled).model_dump(),
                    top_logprobs=[_described(tokenizer, each) for each in step.alternatives],
                )
                for step in steps
            ]
        )


class _VisibleContent:
    """Content that may be streamed already: none of what a tool call could still claim."""

    def __init__(self, parses_calls: bool) -> None:
        self._parses_calls = parses_calls
        self.text = ""
        self.shown = 0

    def push(self, text: str) -> str:
        self.text += text
        certain = len(self.text)
        if self._parses_calls:
            certain = _before_a_call(self.text)
        shown, self.shown = self.text[self.shown : certain], max(certain, self.shown)
        return shown


def _before_a_call(text: str) -> int:
    if (at := text.find(hermes.OPENING)) >= 0:
        return at
    for length in range(min(len(hermes.OPENING) - 1, len(text)), 0, -1):
        if hermes.OPENING.startswith(text[-length:]):
            return len(text) - length
    return len(text)


def _call_id(tokens: Sequence[int], index: int) -> str:
    """Derived from the conversation, so that a repeated answer repeats its ids."""
    return f"call_{blake2b(repr((list(tokens), index)).encode(), digest_size=12).hexdigest()}"


def _described(tokenizer: Tokenizer, likelihood: Likelihood) -> ChatAlternative:
    return ChatAlternative(
        token=tokenizer.text_of(likelihood.token),
        logprob=likelihood.logprob,
        bytes=list(tokenizer.bytes_of(likelihood.token)),
    )
