"""A hostile or broken model server: whatever it answers is a typed error or a bounded turn."""

import asyncio
import gzip
import itertools
import json
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from clotho.errors import ClothoError, InexactTokens, ModelRejected, ModelUnavailable
from clotho.models.backend import SampledTurn, TurnCall, VersionSpan
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.openai_chat import OpenAIChat
from clotho.models.partial_turn import PartialTurn
from clotho.models.sampling import Sampling
from clotho.models.token_server import TokenChunk, TokenRequest
from clotho.models.vllm import VLLMGenerate
from clotho.temporal.failures import to_application_error
from tests.security.hostile_server import Answering, answer, completion, events, hostile, sampled
from tests.support import PATIENCE_SECONDS

KEY = "sk-0123456789abcdefghijklmnopqrstuvwxyz"
CHAT, TOKENS = "chat", "vllm-generate"
MIB = 1 << 20
CALL = TurnCall(
    key="run/g000000/r0/turn/0000",
    model="m",
    messages=(ChatMessage(role="user", content="The prompt."),),
    sampling=Sampling(max_tokens=16, seed=1),
)
REQUEST = TokenRequest(key="k", model="m", prompt_ids=(1, 2), sampling=CALL.sampling)
FORGED = "no\nFAKE LOG LINE\r\x1b[2J\x1b]0;owned\x07 \u202egnol\u2066 \u2028end"


Ask = Callable[[str], Awaitable[object]]


class Measured(BaseModel):
    came_to: str
    mib: int
    cpu: float


async def ask_apart(url: str, inference: str) -> Measured:
    """One turn asked for by a process of its own, whose memory nobody else uses."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.security.ask_model", url, inference), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return Measured.model_validate_json(output)


async def chat(url: str, call: TurnCall = CALL, key: str | None = KEY) -> SampledTurn:
    async with aclosing(ModelHTTP(url, key, timeout=PATIENCE_SECONDS)) as http:
        return await OpenAIChat(http).sample_turn(call)


async def tokens(url: str) -> PartialTurn:
    turn = PartialTurn((1, 2), 572, budget=16)
    async with aclosing(ModelHTTP(url, KEY, timeout=PATIENCE_SECONDS)) as http:
        async for chunk in VLLMGenerate(http).stream(REQUEST):
            turn.add(chunk)
    return turn


def endless(head: bytes, piece: bytes, count: int | None = None) -> Answering:
    def pieces(path: str) -> Iterator[bytes]:
        yield head
        yield from itertools.repeat(piece) if count is None else itertools.repeat(piece, count)

    return pieces


def bomb(inner: bytes, mebibytes: int) -> bytes:
    """Compressed, `inner` and so many mebibytes of spaces after it."""
    compress = zlib.compressobj(9, wbits=31)
    parts = [compress.compress(inner), *(compress.compress(b" " * MIB) for _ in range(mebibytes))]
    return b"".join([*parts, compress.flush()])


GZIP = {"content-encoding": "gzip"}
HALF = b'{"choices": [{"message": {"content": "'
MANY_CALLS = {"function": {"name": "f", "arguments": "{}"}}


@pytest.mark.attack(
    "model-server", "answers of 600 MB, without end, compressed a thousandfold, or of one endless line"
)
@pytest.mark.parametrize(
    ("inference", "answering", "said"),
    [
        pytest.param(
            CHAT, endless(answer(HALF, endless=True), b"x" * MIB, 600), "longer than 8 MiB", id="600 MB"
        ),
        pytest.param(
            CHAT, endless(answer(HALF, endless=True), b"x" * MIB), "longer than 8 MiB", id="endless"
        ),
        pytest.param(
            CHAT,
            lambda path: [answer(bomb(completion(), 300), headers=GZIP)],
            "longer than 8 MiB",
            id="compressed",
        ),
        pytest.param(
            CHAT,
            lambda path: [answer(bomb(b"", 300), 500, GZIP)],
            "ModelUnavailable: the model server answers 500",
            id="compressed error",
        ),
        pytest.param(
            CHAT,
            lambda path: [answer(gzip.compress(completion())[:-8], headers=GZIP)],
            "ends early",
            id="compressed and cut",
        ),
        pytest.param(
            CHAT,
            endless(answer(b"oops", 400, endless=True), b"x" * MIB),
            "answers 400: oopsxxx",
            id="endless error",
        ),
        pytest.param(
            TOKENS,
            endless(answer(b"data: ", endless=True), b"x" * MIB),
            "longer than 8 MiB",
            id="endless line",
        ),
        pytest.param(
            TOKENS,
            endless(answer(endless=True), b'data: {"choices": []}\n' * 100),
            "stream has no end",
            id="endless events",
        ),
        pytest.param(
            TOKENS,
            endless(answer(endless=True), events(sampled([5] * 500))[: -len(b"data: [DONE]\n\n")]),
            "InexactTokens: the model server samples more than the 16 tokens",
            id="endless tokens",
        ),
        pytest.param(
            CHAT,
            lambda path: [answer(completion({"tool_calls": [MANY_CALLS] * 100_000}))],
            "answered with 100000 calls",
            id="100,000 calls",
        ),
        pytest.param(
            CHAT, lambda path: [answer(b"[" * 7 * MIB)], "not a chat completion", id="nested without end"
        ),
        pytest.param(
            CHAT,
            lambda path: [answer(completion({"reasoning_details": [{}] * 2_000_000}))],
            "answered with 0 calls|not a chat completion",
            id="millions of objects",
        ),
    ],
)
async def test_memory_stays_bounded(inference: str, answering: Answering, said: str) -> None:
    """Of a process that takes 100 MiB: the largest answer that is read, taken apart, not what a server sends."""
    async with hostile(answering) as server:
        asked = await ask_apart(server.url, inference)
    assert any(each in asked.came_to for each in said.split("|")), asked
    assert asked.mib < 400, asked
    assert asked.cpu < 20, asked


@pytest.mark.attack("model-server", "more tokens than were asked for")
async def test_more_tokens_than_asked_for_are_refused() -> None:
    async with hostile(answer(events(sampled([5] * 100, "stop")))) as server:
        with pytest.raises(InexactTokens, match="more than the 16 tokens"):
            await tokens(server.url)
    async with hostile(answer(events(*[sampled([5])] * 15, sampled([2], "stop")))) as server:
        assert len((await tokens(server.url)).ids) == 16


@pytest.mark.attack("model-server", "counts of tokens that are negative, absurd or 4,299 digits long")
@pytest.mark.parametrize("count", [-(10**9), 10**10, int("9" * 4_299), -1, 1.5, "many"])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
async def test_counts_that_cannot_be_are_refused(name: str, count: object) -> None:
    body = completion(usage={name: count})
    async with hostile(answer(body)) as server:
        with pytest.raises(ModelUnavailable, match=f"not a chat completion: .* at usage.{name}"):
            await chat(server.url)
    async with hostile(
        answer(events(sampled([5], "stop") | {"usage": {"completion_tokens": count}}))
    ) as server:
        with pytest.raises(ModelUnavailable, match="not understood"):
            await tokens(server.url)


@pytest.mark.attack("model-server", "weight versions of tokens that weren't sampled")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"weight_versions": [{"version": "7", "start": -5, "end": 1}]}, r"tokens \[-5, 1\) of 1"),
        ({"weight_versions": [{"version": "7", "start": 0, "end": 10**12}]}, "weight versions"),
        ({"weight_versions": [{"version": "7", "start": 1, "end": 0}]}, "weight versions"),
        ({"weight_versions": [{"version": "7" * 5_000, "start": 0, "end": 1}]}, "is no name"),
        ({"weight_versions": [{"version": "7\n8", "start": 0, "end": 1}]}, "is no name"),
    ],
)
async def test_what_is_said_of_other_tokens_is_refused(fields: dict[str, Any], said: str) -> None:
    async with hostile(answer(events(sampled([5], "stop", **fields)))) as server:
        with pytest.raises(InexactTokens, match=said):
            await tokens(server.url)


async def test_what_is_said_of_sampled_tokens_is_kept() -> None:
    said = {"weight_versions": [{"version": "7", "start": 0, "end": 1}]}
    async with hostile(answer(events(sampled([5], "stop", **said)))) as server:
        turn = await tokens(server.url)
    assert turn.versions[0].version == "7"


def test_thousands_of_spans_take_no_time() -> None:
    turn = PartialTurn((1,), 572)
    count = 20_000
    spans = tuple(VersionSpan(version=str(at % 7), start=at, end=at + 1) for at in range(count))
    turn.add(TokenChunk(ids=(5,) * count, logprobs=(0.0,) * count, versions=spans))
    assert len(turn.versions) == count


DRIP = 0.02
FIRST = b"data: " + json.dumps(sampled([5])).encode() + b"\n\n"


@pytest.mark.attack("model-server", "an answer that drips, a byte, a comment or an empty event at a time")
@pytest.mark.parametrize(
    ("inference", "head", "drop", "said"),
    [
        pytest.param(CHAT, HALF, b" ", "no answer from the model server", id="a byte"),
        pytest.param(TOKENS, FIRST, b": ping\n\n", "no answer from the model server", id="comments"),
        pytest.param(TOKENS, b"", b": ping\n\n", "no token from the model server within 1 s", id="no token"),
        pytest.param(
            TOKENS,
            b"",
            b'data: {"choices": []}\n\n',
            "no token from the model server within 1 s",
            id="events",
        ),
    ],
)
async def test_answers_that_drip_have_an_end(inference: str, head: bytes, drop: bytes, said: str) -> None:
    """The last two within the time to the first token, long before that of the whole answer."""
    whole = PATIENCE_SECONDS if "no token" in said else 1.0
    async with hostile(endless(answer(head, endless=True), drop), DRIP) as server:
        http = ModelHTTP(server.url, KEY, whole, first_token_seconds=1.0)
        with pytest.raises(ModelUnavailable, match=said):
            async with aclosing(http):
                if inference == CHAT:
                    await OpenAIChat(http).sample_turn(CALL)
                else:
                    [_ async for _ in VLLMGenerate(http).stream(REQUEST)]


async def test_an_answer_may_take_longer_than_its_first_token() -> None:
    pieces = [answer(FIRST, endless=True), *[b": ping\n\n"] * 300, events(sampled([6], "stop"))]
    async with hostile(lambda path: pieces, DRIP) as server:
        http = ModelHTTP(server.url, KEY, PATIENCE_SECONDS, first_token_seconds=5.0)
        async with aclosing(http):
            ids = [chunk.ids async for chunk in VLLMGenerate(http).stream(REQUEST)]
    assert ids == [(5,), (6,)]


@pytest.mark.attack("model-server", "tokens after the answer's end")
async def test_tokens_after_the_end_are_refused() -> None:
    async with hostile(answer(events(sampled([5], "stop"), sampled([6])))) as server:
        with pytest.raises(InexactTokens, match=r"samples on after its answer has ended \(stop\)"):
            await tokens(server.url)
    async with hostile(answer(events(sampled([5], "stop"), {"choices": []}))) as server:
        assert (await tokens(server.url)).ids == [5]


@pytest.mark.attack("model-server", "Retry-After: inf, 1e400, 999999999999, of a year that no clock has")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "most"),
    [
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "-1e300"}, None),
        ({"retry-after": "999999999999"}, timedelta(hours=1)),
        ({"retry-after": "9" * 4_000}, timedelta(hours=1)),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, timedelta(hours=1)),
        ({"retry-after": "Mon, 01 Jan 0001 00:00:00 -2359"}, None),
        ({"retry-after": "Fri, 31 Dec 99999999999 23:59:59 GMT"}, None),
        ({"retry-after-ms": "1e308"}, timedelta(hours=1)),
        ({"x-ratelimit-reset": "1e308"}, timedelta(minutes=1)),
        ({"x-ratelimit-reset": "9" * 400 + "d"}, timedelta(minutes=1)),
    ],
    ids=str,
)
async def test_waits_are_bounded(status: int, header: dict[str, str], most: timedelta | None) -> None:
    async with hostile(answer(b"busy", status, header)) as server:
        with pytest.raises(ModelUnavailable) as caught:
            await chat(server.url)
    wait = caught.value.retry_after
    assert wait is None or (most is not None and timedelta(0) < wait <= most)
    assert to_application_error(caught.value, 1).next_retry_delay is not None


@pytest.mark.attack(
    "model-server", "a redirect to another origin, for the prompt, the key and the error's text"
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_prompts_do_not_follow_redirects(status: int) -> None:
    async with hostile(answer(completion({"content": "stolen"}))) as elsewhere:
        location = {"location": f"{elsewhere.url}/chat/completions?key={KEY}"}
        async with hostile(answer(b"", status, location)) as server:
            for ask in (chat, tokens):
                with pytest.raises(
                    ModelRejected, match=r"a redirect to 127.0.0.1:\d+, which isn't followed"
                ) as caught:
                    await ask(server.url)
                assert KEY not in str(caught.value)
        assert elsewhere.requests == []


@pytest.mark.attack("model-server", "the API key in an error's text, wherever that is cut")
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("before", [0, 150, 190, 199, 200, 201, 560, 596, 599, 65_500, 65_520, 65_535])
async def test_no_part_of_a_key_is_left_in_an_error(before: int, encoded: bool) -> None:
    text = "x" * before + KEY + "y" * 300
    body = json.dumps({"error": {"message": text}}) if encoded else text
    async with hostile(answer(body.encode(), 400)) as server:
        for ask in (chat, tokens):
            with pytest.raises(ClothoError) as caught:
                await ask(server.url)
            assert KEY[:8] not in str(caught.value) and KEY[-8:] not in str(caught.value)


@pytest.mark.attack(
    "model-server", "the API key in the headers, the fingerprint or the model's name of a good answer"
)
async def test_a_reflected_key_is_not_kept() -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
    body = completion(
        {"content": f"a {KEY} b", "reasoning": KEY}, model=KEY, system_fingerprint="FINGERPRINT"
    )
    body = body.replace(b"FINGERPRINT", escaped.encode())
    async with hostile(answer(body, headers={"x-request-id": f"{KEY} {'z' * 500}"})) as server:
        turn = await chat(server.url)
    assert KEY not in turn.model_dump_json()
    assert turn.message.content == "a [REDACTED] b"
    assert (turn.model, turn.system_fingerprint) == ("[REDACTED]", "[REDACTED]")
    assert turn.provider_request_id is not None and len(turn.provider_request_id) <= 200
    async with hostile(answer(events(sampled([5], "stop") | {"system_fingerprint": KEY}))) as server:
        assert (await tokens(server.url)).system_fingerprint == "[REDACTED]"


@pytest.mark.attack(
    "model-server", "line breaks, terminal escapes and bidirectional marks in an error's text"
)
async def test_an_errors_text_is_one_plain_line() -> None:
    spoken = json.dumps({"error": {"message": FORGED}})
    stream = b'data: {"error": ' + json.dumps({"message": FORGED, "code": 10**400}).encode() + b"}\n\n"
    cases: list[tuple[Ask, bytes]] = [
        (chat, answer(spoken.encode(), 400)),
        (chat, answer(FORGED.encode(), 503)),
        (tokens, answer(stream)),
    ]
    for ask, answered in cases:
        async with hostile(answered) as server:
            with pytest.raises(ClothoError) as caught:
                await ask(server.url)
        text = str(caught.value)
        assert "FAKE LOG LINE" in text and len(text.splitlines()) == 1, text
        assert text.isprintable() and "\u202e" not in text and "\u2066" not in text, text


@pytest.mark.attack("model-server", "answers that are no HTTP, no JSON, or another thing than they say")
@pytest.mark.parametrize(
    "answered",
    [
        b"",
        b"\x00" * 1_000,
        b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nx-a: " + b"b" * 10_000_000,
        b"HTTP/1.1 99999999999 OK\r\n\r\n",
        answer(completion(), headers={"content-encoding": "br"}),
        answer(completion(), headers={"content-encoding": "gzip"}),
        answer(gzip.compress(completion())[:-20], headers={"content-encoding": "gzip"}),
        answer(b"\xff\xfe{}"),
        answer(b"{" * 100_000, 400),
        answer(b'{"error": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", 400),
        answer(b'{"error": {"message": {"a": 1}, "code": "x"}}', 422),
        answer(completion({"tool_calls": [{"id": "x" * 10_000, "function": {"name": "f"}}]})),
        answer(completion({"content": "\ud800"})),
        answer(completion({"tool_calls": [{"function": {"name": "\ud800", "arguments": "\udfff"}}]})),
        answer(completion(), 204),
        answer(b"", 101),
    ],
    ids=range(17),
)
async def test_garbage_is_a_typed_error_or_a_turn_that_can_be_kept(answered: bytes) -> None:
    async with hostile(answered) as server:
        for ask in (chat, tokens):
            try:
                turn = await ask(server.url)
            except ClothoError as error:
                assert len(str(to_application_error(error, 1))) < 2_000
            else:
                assert isinstance(turn, SampledTurn)
                assert SampledTurn.model_validate_json(turn.model_dump_json()) == turn
                assert all(len(call.id) <= 256 for call in turn.message.tool_calls)
