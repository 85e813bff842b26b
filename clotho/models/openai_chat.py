"""Chat mode: turns sampled through any OpenAI-compatible server, without token ids."""

import json
import time

from pydantic import JsonValue

from clotho.models.backend import SampledTurn, TurnCall
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP, Reply
from clotho.models.openai_answer import listed_models, read_completion
from clotho.models.provider_errors import refusal
from clotho.models.sampling import Sampling
from clotho.models.token_server import printable_name

ONE_TOKEN = Sampling(top_k=None, min_p=None, repetition_penalty=None, max_tokens=1)


class OpenAIChat:
    """One model server's chat completions."""

    def __init__(self, http: ModelHTTP) -> None:
        self._http = http

    @property
    def capabilities(self) -> None:
        """The server's capabilities: None, since chat mode has no tokens."""

    async def sample_turn(self, call: TurnCall) -> SampledTurn:
        """Sample one assistant message, once. Raises ModelUnavailable, ModelRejected or ContextOverflow."""
        started, clock = time.time(), time.perf_counter()
        async with self._http.errors():
            answer = await self._answer(call)
            completion = read_completion(answer.body)
        message, defects = completion.answer(call.key, tools_offered=bool(call.tools))
        return SampledTurn(
            message=message,
            defects=defects,
            finish_reason=completion.finish_reason,
            usage=completion.token_usage(),
            model=self._name(completion.model) or call.model,
            sampling=call.sampling,
            started=started,
            seconds=time.perf_counter() - clock,
            system_fingerprint=self._name(completion.system_fingerprint),
            provider_request_id=self._name(answer.headers.get("x-request-id")),
            reasoning_details=completion.reasoning_details(),
        )

    async def check(self, model: str) -> None:
        """Raise what sampling from `model` would raise; a model that isn't listed is tried."""
        async with self._http.errors():
            listed = await listed_models(self._http, self._http.base_url)
        if listed is None or model in [each.id for each in listed]:
            return
        greeting = ChatMessage(role="user", content="Hello")
        await self.sample_turn(
            TurnCall(key=f"check/{model}", model=model, messages=(greeting,), sampling=ONE_TOKEN)
        )

    async def _answer(self, call: TurnCall) -> Reply:
        body = json.dumps({"model": call.model, **request_body(call)}).encode()
        headers = {"content-type": "application/json", "idempotency-key": call.key}
        answer = await self._http.exchange("POST", f"{self._http.base_url}/chat/completions", body, headers)
        if answer.status != 200:
            text = answer.body.decode(errors="replace")
            raise refusal(answer.status, answer.headers, text, call.sampling.max_tokens, self._http.redact)
        return answer

    def _name(self, name: str | None) -> str | None:
        return printable_name(self._http.redact(name)) if name else None


def request_body(call: TurnCall) -> dict[str, JsonValue]:
    """The fields of a chat completion request beside the model's name."""
    sampling = call.sampling
    body: dict[str, JsonValue] = sampling.model_dump(mode="json", exclude_none=True, exclude={"extra_body"})
    for name in ("stop", "stop_token_ids"):
        if not body[name]:
            del body[name]
    body["messages"] = [message.wire() for message in call.messages]
    if call.tools:
        body["tools"] = list(call.tools)
    return body | sampling.extra_body
