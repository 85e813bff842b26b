"""Chat mode: turns sampled through any OpenAI-compatible server, without token ids."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import openai
from pydantic import JsonValue

from clotho.errors import ClothoError, ModelUnavailable
from clotho.inference.base import ChatMessage, SampledTurn, Sampling, TurnCall, checked_base_url
from clotho.inference.openai_answer import read_completion, read_model_list
from clotho.inference.provider_errors import located, refusal

NO_KEY = "none"
ONE_TOKEN = Sampling(top_k=None, min_p=None, repetition_penalty=None, max_tokens=1)


class OpenAIChat:
    """One model server and one pool of connections to it. `timeout`: seconds that a server may be silent.

    Raises InvalidInput for a URL with credentials in it: URLs are journalled and shown.
    """

    def __init__(self, base_url: str, api_key: str | None = None, timeout: float = 3600.0) -> None:
        self._endpoint = checked_base_url(base_url)
        self._api_key = api_key
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or NO_KEY,
            max_retries=0,
            timeout=openai.Timeout(timeout, connect=10.0),
            # Half the CPU of the default at a hundred concurrent calls.
            http_client=openai.DefaultAioHttpClient(),
        )

    @property
    def found(self) -> None:
        """Chat mode knows of no tokens, and so finds out nothing about them."""

    async def sample_turn(self, call: TurnCall) -> SampledTurn:
        """Sample one assistant message, once. Raises ModelUnavailable, ModelRejected or ContextOverflow."""
        started, clock = time.time(), time.perf_counter()
        with self._errors(call.sampling):
            # The body goes in as it is: the client would walk typed arguments one by one, which costs
            # 5 ms of CPU for a transcript of twenty messages.
            answer = await self._client.chat.completions.with_raw_response.create(
                model=call.model,
                messages=[],
                extra_headers={"Idempotency-Key": call.key},
                extra_body=request_body(call),
            )
            completion = read_completion(answer.content)
        return SampledTurn(
            message=completion.message(call.key, tools_offered=bool(call.tools)),
            finish_reason=completion.finish_reason,
            usage=completion.token_usage(),
            model=completion.model or call.model,
            sampling=call.sampling,
            started=started,
            seconds=time.perf_counter() - clock,
            system_fingerprint=completion.system_fingerprint,
            provider_request_id=answer.headers.get("x-request-id"),
            reasoning_details=completion.reasoning_details(),
        )

    async def check(self, model: str) -> None:
        """Raise what sampling from `model` would raise: servers list their models, but not always all."""
        with self._errors(Sampling()):
            try:
                answer = await self._client.models.with_raw_response.list()
            except openai.NotFoundError:
                return
            listed = read_model_list(answer.content)
        if model not in listed:
            greeting = ChatMessage(role="user", content="Hello")
            await self.sample_turn(
                TurnCall(key=f"check/{model}", model=model, messages=(greeting,), sampling=ONE_TOKEN)
            )

    async def aclose(self) -> None:
        await self._client.close()

    @contextmanager
    def _errors(self, sampling: Sampling) -> Iterator[None]:
        try:
            yield
        except openai.APIStatusError as error:
            answer = error.response
            refused = refusal(answer.status_code, answer.headers, answer.text, sampling.max_tokens)
            raise located(refused, self._endpoint, self._api_key) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            found = ModelUnavailable(f"no answer from the model server ({type(cause).__name__}: {cause})")
            raise located(found, self._endpoint, self._api_key) from None
        except ClothoError as error:
            raise located(error, self._endpoint, self._api_key) from None


class OpenAIChatServers:
    """One OpenAIChat for each base URL and key."""

    def __init__(self, timeout: float = 3600.0) -> None:
        self._timeout = timeout
        self._servers: dict[tuple[str, str | None], OpenAIChat] = {}

    def at(self, base_url: str, api_key: str | None = None) -> OpenAIChat:
        server = self._servers.get((base_url, api_key))
        if server is None:
            server = self._servers[base_url, api_key] = OpenAIChat(base_url, api_key, self._timeout)
        return server

    async def aclose(self) -> None:
        for server in self._servers.values():
            await server.aclose()


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
