"""One request to a model that a tool calls: its answer, or a failure that says whose fault it is.

Each request is journalled under a name of its own and carries an Idempotency-Key: an attempt that follows a
worker's death finds the answer that was paid for. Nothing is retried here.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import JsonValue

from clotho.errors import InvalidInput, ServiceRejected, ServiceUnavailable
from clotho.escaping import truncate_middle
from clotho.imported import BACKEND_OF_ANYIO, load
from clotho.plugins.services.settings import ModelService, services_of
from clotho.tools.results import problem
from clotho.tools.retry_after import retry_after
from clotho.tools.secrecy import Redactor
from clotho.tools.tool import CallContext, Question, ToolOutcome

if TYPE_CHECKING:
    import openai
    from openai.types.chat.chat_completion import Choice

SLOT = "services"
MOST_BYTES = 32 << 20
"""Bytes of an answer."""
MOST_SAID_CHARS = 300
OF_THE_REQUEST = (400, 413, 422)
TOO_LARGE, FORBIDDEN = 413, 403
UNAVAILABLE = (402, 408, 409, 425, 429)
UNKNOWN_MODEL = ("model_not_found", "unknown model", "invalid model", "model not found")
ABSENT = "does not exist"
"""Said of an unknown model beside its name; without it, of anything that the request names."""
OF_THE_PROMPT = (
    *("context_length", "context length", "context size", "context window", "contextwindow"),
    *("prompt is too long", "input is too long", "content': string too long", "input token count"),
    *("maximum model length", "reduce the length of the messages"),
    *("content_policy", "content policy", "contentpolicy", "content_filter", "content filter"),
    *("violates our", "invalid_prompt", "data_inspection_failed"),
    *("content management policy", "usage polic", "safety system", "moderation_blocked", "flagged"),
)
"""What providers say of a prompt that is too long for the model, or that they don't answer."""
OF_THE_SETTINGS = (
    *("api key", "api_key", "credit", "billing", "quota", "unrecognized", "extra inputs", "extra_forbidden"),
    *("unknown parameter", "unknown_parameter", "unsupported parameter", "unsupported_parameter"),
    *("unsupported value", "unsupported_value", "unknown field"),
)
"""What they say, with the status of a wrong request, of a wrong key, used-up credit and wrong fields."""
NO_KEY = "none"
# not imported with this module, since only runs that ask models need them; nor by the client's attributes, whose
# first use is on the event loop
CLIENTS_MODULES = (
    *("openai.resources.chat.chat", "openai.resources.chat.completions.completions"),
    *("openai.resources.images", BACKEND_OF_ANYIO),
    "httpx",  # openai looks into it once it is there, half loaded by another thread too
)

Message = dict[str, Any]
Once = Callable[[str, Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]]


class PromptRefused(InvalidInput):
    """The model doesn't answer what it was asked: it would refuse the same again."""


@dataclass(frozen=True)
class Asker:
    """Asks models for one call of a tool, or for one verification."""

    once: Once
    variable: Callable[[str], str | None]
    key: str
    """What the Idempotency-Keys begin with: the same in every attempt."""

    @classmethod
    def of(cls, context: CallContext) -> "Asker":
        return cls(context.once, context.variable, context.call_key)

    async def answer(self, service: ModelService, messages: Sequence[Message], place: str | int = 0) -> str:
        """The text that the model answers `messages` with.

        `place` tells requests of the same messages apart. Raises InvalidInput for a request that it refuses,
        ServiceUnavailable for an outage and 429, ServiceRejected for a wrong key, credit that is used up, wrong
        fields, or a model that isn't there.
        """
        return await self._answer(service, messages, place, _content)

    async def verdict(self, service: ModelService, prompt: str, place: int) -> str:
        """A judge's whole answer to `prompt`; empty where it refuses the prompt. No other failure is an answer."""
        try:
            return await self._answer(service, [{"role": "user", "content": prompt}], place, _whole)
        except PromptRefused:
            return ""
        except InvalidInput as refused:
            raise ServiceRejected(f"{service.model}: {refused}") from refused

    async def _answer(
        self,
        service: ModelService,
        messages: Sequence[Message],
        place: str | int,
        read: Callable[["Choice"], str],
    ) -> str:
        async def made() -> str:
            async with self._client(service) as client:
                completion = await client.chat.completions.create(
                    model=service.model,
                    messages=list(messages),  # type: ignore[arg-type]
                    extra_headers={"Idempotency-Key": self._idempotency_key(request)},
                    extra_body=service.extra_body,
                )
                return read(completion.choices[0])

        request: list[JsonValue] = ["chat", service.url, service.model, str(place), *messages]
        return await self._paid_once(service, request, made)

    async def image(self, service: ModelService, prompt: str, size: str) -> str:
        """The image that the model makes, in base 64 or as a URL. Raises as `answer` does."""

        async def made() -> str:
            async with self._client(service) as client:
                images = await client.images.generate(
                    model=service.model,
                    prompt=prompt,
                    n=1,
                    extra_headers={"Idempotency-Key": self._idempotency_key(request)},
                    extra_body={"size": size, **service.extra_body},
                )
                image = (images.data or [])[0]
                return str(image.b64_json or image.url or "")

        request: list[JsonValue] = ["image", service.url, service.model, prompt, size]
        return await self._paid_once(service, request, made)

    async def _paid_once(
        self, service: ModelService, request: list[JsonValue], made: Callable[[], Awaitable[str]]
    ) -> str:
        async def journalled() -> ToolOutcome:
            try:
                # halves of surrogate pairs can't be written as UTF-8
                said = (await made()).encode(errors="replace").decode()
                return ToolOutcome(content=_redactor(service, self.variable)(said))
            except PromptRefused as refused:
                # journalled like an answer; any other failure isn't, and the next attempt asks again
                return problem(str(refused)).model_copy(update={"error": str(refused)})

        done = await self.once(f"ask-{_digest(request)[:24]}", journalled)
        if done.error is not None:
            raise PromptRefused(done.error)
        return done.content

    def _idempotency_key(self, request: list[JsonValue]) -> str:
        return f"{self.key}-{_digest(request)[:16]}"

    @asynccontextmanager
    async def _client(self, service: ModelService) -> AsyncIterator["openai.AsyncOpenAI"]:
        """A client whose errors are told in Clotho's vocabulary, without the key."""
        await load(*CLIENTS_MODULES)
        import openai

        key = _key(service, self.variable)
        redact = _redactor(service, self.variable)
        http = httpx2.AsyncClient(
            transport=await asyncio.to_thread(_Bounded),  # reads all certificates of authorities
            timeout=httpx2.Timeout(service.seconds, connect=10.0),
            follow_redirects=False,
        )
        try:
            async with openai.AsyncOpenAI(
                base_url=service.url, api_key=key, max_retries=0, http_client=http
            ) as client:
                yield client
        except openai.APIStatusError as error:
            raise _refusal(error, service, redact) from None
        except openai.APIConnectionError as error:
            # openai wraps what its transport raises, so also the errors of _Bounded
            cause = error.__cause__ or error
            if isinstance(cause, ServiceUnavailable):
                raise cause from None
            raise ServiceUnavailable(f"{service.model} can't be reached: {type(cause).__name__}") from None
        except (openai.OpenAIError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ServiceUnavailable(
                f"{service.model} sent what isn't its answer: {type(error).__name__}"
            ) from None


async def judge(question: Question) -> str | None:
    """The verdict of the model that the run has set as its judge; None: it has set none."""
    model = services_of(question.settings).judge
    if model is None:
        return None
    asker = Asker(question.once, question.variable, question.key)
    return await asker.verdict(model, question.prompt, question.number)


def used_up(context: CallContext, wanted: int) -> str | None:
    """Tell the model that its rollout may not make `wanted` further calls of models; None where it may."""
    services = services_of(context.settings)
    if _made(context) + wanted <= services.max_calls:
        return None
    return f"The {services.max_calls} calls of other models that this task may make are used up"


def counted(outcome: ToolOutcome, context: CallContext, made: int) -> ToolOutcome:
    """The outcome, with the calls that it took added to the count in the rollout's state."""
    return outcome.model_copy(update={"state": {SLOT: {"calls": _made(context) + made}}})


def _made(context: CallContext) -> int:
    found = context.state.get(SLOT)
    made = found.get("calls", 0) if isinstance(found, dict) else 0
    assert isinstance(made, int)
    return made


def _digest(request: list[JsonValue]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _key(service: ModelService, variable: Callable[[str], str | None]) -> str:
    if service.key is None:
        return NO_KEY
    key = (variable(service.key) or "").strip()
    if not key:
        raise ServiceRejected(f"{service.model}: environment variable {service.key} is not set")
    if not (key.isascii() and key.isprintable()):
        raise ServiceRejected(f"{service.model}: environment variable {service.key} holds what is no key")
    return key


def _redactor(service: ModelService, variable: Callable[[str], str | None]) -> Redactor:
    key = _key(service, variable)
    return Redactor([key] if key != NO_KEY else [])


def _content(choice: "Choice") -> str:
    return str(choice.message.content or "")


def _whole(choice: "Choice") -> str:
    """The text of a complete answer. Raises ServiceUnavailable for none, and for one that was cut off."""
    said, ended = _content(choice), getattr(choice, "finish_reason", None)  # not every server tells
    if ended == "content_filter" or (choice.message.refusal and not said):
        raise PromptRefused("The model refused to answer")
    if ended == "length" or not said.strip():
        raise ServiceUnavailable(f"a model's answer is empty or cut off (finish_reason {ended})")
    return said


def _refusal(error: "openai.APIStatusError", service: ModelService, redact: Redactor) -> Exception:
    """Tell whose fault it is by the message: providers answer 400 for wrong settings, too."""
    status, said = error.status_code, redact(error.message)
    named = f"{said} {error.code} {error.type}".lower()
    if status in UNAVAILABLE or status >= 500 or status < 400:
        return ServiceUnavailable(
            f"{service.model} answered HTTP {status}", retry_after(error.response.headers)
        )
    told = f"The model refused the request: {truncate_middle(said, MOST_SAID_CHARS)}"
    of_the_prompt = status == TOO_LARGE or any(each in named for each in OF_THE_PROMPT)
    if status in (*OF_THE_REQUEST, FORBIDDEN) and of_the_prompt:
        return PromptRefused(told)
    unknown = ABSENT in named and service.model.lower() in named
    of_the_settings = unknown or any(each in named for each in UNKNOWN_MODEL + OF_THE_SETTINGS)
    if status in OF_THE_REQUEST and not of_the_settings:
        return InvalidInput(told)
    return ServiceRejected(f"{service.model} refused the request: HTTP {status}")


@dataclass
class _Bounded(httpx2.AsyncBaseTransport):
    """Answers of bounded size, which aren't packed: what they would unpack to has no bound."""

    inner: httpx2.AsyncBaseTransport = field(default_factory=lambda: httpx2.AsyncHTTPTransport())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await self.inner.handle_async_request(request)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ServiceUnavailable("a model's server packs answers that were asked for unpacked")
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MOST_BYTES:
                    raise ServiceUnavailable(f"a model's server sent more than {MOST_BYTES >> 20} MiB")
        finally:
            await response.aclose()
        kept = [(k, v) for k, v in response.headers.items() if k.lower() != "transfer-encoding"]
        return httpx2.Response(response.status_code, headers=kept, content=bytes(body), request=request)

    async def aclose(self) -> None:
        await self.inner.aclose()
