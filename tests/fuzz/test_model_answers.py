"""Model servers' answers, over real HTTP: whatever comes back is a typed error, or a turn that can be kept."""

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Any

from clotho.errors import ClothoError
from clotho.escaping import for_line, truncate_middle
from clotho.models.backend import SampledTokens, SampledTurn, TurnCall
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.openai_chat import OpenAIChat
from clotho.models.partial_turn import PartialTurn
from clotho.models.sampling import Sampling
from clotho.models.sglang import SGLang
from clotho.models.token_server import TokenRequest, TokenServer
from clotho.models.vllm import VLLMCompletions, VLLMGenerate
from clotho.temporal.failures import to_application_error
from tests.fuzz.runner import Fuzzer, character, mutated
from tests.security.hostile_server import answer, completion, hostile
from tests.support import PATIENCE_SECONDS

SLOWEST = 2.0
"""Seconds of CPU for one answer."""
MEASUREMENTS = 5
"""Of an answer that seems slow: machines stand still, and collect garbage."""
BUDGET, VOCABULARY = 8, 50
PROMPT = (1, 2, 3)
KEY = "sk-0123456789abcdefghij"
SAMPLING = Sampling(max_tokens=BUDGET, seed=1)
CALL = TurnCall(
    key="run/g000000/r0/turn/0000",
    model="m",
    messages=(ChatMessage(role="user", content="Go."),),
    tools=({"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}},),
    sampling=SAMPLING,
)
REFUSED = (204, 302, 400, 401, 413, 422, 429, 500, 503, 599)
SERVERS = (VLLMGenerate, VLLMCompletions, SGLang)
HERMES = '<tool_call>{"name": "terminal", "arguments": {"a": 1}}</tool_call>'
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        5,
        49,
        50,
        10**9,
        10**12,
        -(10**30),
        int("9" * 4_000),
        0.5,
        -1e308,
        1e309,
        float("nan"),
    ),
    *("", "x", "stop", "length", "error", "abort", KEY, "\ud800", "\u202e\x1b[2J\n", "x" * 70_000, HERMES),
    *([], [[]], [5], [5, 5], [[5], [4, 5]], {}, {"a": {}}, {"message": "no", "code": 400}, {"code": 10**40}),
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("retry-after", "1e400"),
    ("retry-after", "-5"),
    ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"),
    ("retry-after-ms", "nan"),
    ("x-ratelimit-reset", "9999d"),
    ("x-request-id", KEY * 20),
    ("content-encoding", "gzip"),
    ("content-encoding", "zstd"),
    ("location", "http://[::1"),
    ("location", f"//{KEY}@host:99999/"),
    ("transfer-encoding", "chunked"),
)
PIECES = (
    "data:",
    "data: [DONE]",
    "\n",
    "\n\n",
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "\\",
    "null",
    "1e999",
    "[" * 500,
    KEY,
)


@dataclass(frozen=True)
class Case:
    server: type[VLLMGenerate] | type[VLLMCompletions] | type[SGLang] | None
    """None: chat mode."""
    sent: bytes


async def test_no_answer_breaks_a_model_process(fuzzer: Fuzzer) -> None:
    next_answer: list[bytes] = []
    async with hostile(lambda path: iter(next_answer)) as server:

        async def ask(case: Case) -> float:
            """How much CPU time that takes."""
            next_answer[:] = [case.sent]
            started = time.thread_time()
            async with aclosing(ModelHTTP(server.url, KEY, timeout=PATIENCE_SECONDS)) as http:
                try:
                    turn = await _turn(http, case)
                except ClothoError as error:
                    _check_error(error)
                else:
                    _check_turn(turn)
            return time.thread_time() - started

        async def check(case: Case) -> None:
            for _ in range(MEASUREMENTS):
                if await ask(case) < SLOWEST:
                    return
            raise AssertionError("slow")

        assert await fuzzer.run_async(make, check)


def make(random: Random) -> Case:
    server = random.choice((None, *SERVERS))
    body = _whole_answer(random) if server is None else "".join(_stream(random, server))
    if random.random() < 0.15:
        body = mutated(random, body, (*PIECES, character(random)))
    status = 200 if random.random() < 0.8 else random.choice(REFUSED)
    headers = dict(random.choices(HEADERS, k=random.choice((0,) * 8 + (1, 2))))
    content = body.encode("utf-8", "surrogatepass")
    if random.random() < 0.1:
        headers["content-encoding"], content = "gzip", gzip.compress(content, 1)
    sent = answer(content, status, headers)
    if random.random() < 0.05:
        sent = sent[: random.randint(0, len(sent))]
    return Case(server, sent)


def _whole_answer(random: Random) -> str:
    call = {"id": "a", "function": {"name": "terminal", "arguments": '{"a": 1}'}}
    message = {
        "content": HERMES,
        "reasoning": "hm",
        "tool_calls": [call],
        "reasoning_details": [{"text": "x"}],
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}
    whole = json.loads(completion(message, usage=usage, system_fingerprint="f", error=None))
    return json.dumps(_changed(random, whole))


def _stream(random: Random, server: type) -> Iterator[str]:
    seen: list[int] = []
    for number in range(random.randint(0, BUDGET + 1)):
        ids = [random.randrange(VOCABULARY) for _ in range(random.choice((0, 1, 1, 1, 2)))]
        seen += ids
        last = number >= BUDGET // 2 and random.random() < 0.5
        event = _event(server, ids, seen, "stop" if last else None)
        yield f"data: {json.dumps(_changed(random, event) if random.random() < 0.2 else event)}\n\n"
        if last:
            break
    if random.random() < 0.9:
        yield "data: [DONE]\n\n"


def _event(server: type, ids: list[int], seen: list[int], finish: str | None) -> dict[str, Any]:
    usage = {"completion_tokens": len(seen), "prompt_tokens_details": {"cached_tokens": 1}}
    versions = [{"version": "7", "start": 0, "end": len(seen)}]
    match server.__name__:
        case "VLLMGenerate":
            logprobs = {"content": [{"token_id": token, "logprob": -0.5} for token in ids]}
            choice = {"token_ids": ids, "logprobs": logprobs, "weight_versions": versions}
        case "VLLMCompletions":
            choice = {
                "token_ids": ids,
                "logprobs": {"token_logprobs": [-0.5] * len(ids)},
                "prompt_token_ids": [1, 2, 3],
            }
        case _:
            rows = [[-0.5, token, None] for token in seen]
            ending = {"type": finish, "matched": 2} if finish else None
            meta = {"output_token_logprobs": rows, "completion_tokens": len(seen), "finish_reason": ending}
            return {"output_ids": list(seen), "meta_info": meta | {"weight_version": "7", "cached_tokens": 1}}
    return {
        "choices": [choice | {"finish_reason": finish, "stop_reason": None}],
        "usage": usage,
        "error": None,
    }


def _changed(random: Random, value: Any) -> Any:
    """`value` with something in it replaced, dropped or repeated."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(list(value))
        if random.random() < 0.1:
            return {other: each for other, each in value.items() if other != name}
        return value | {name: _changed(random, value[name])}
    if isinstance(value, list) and value and random.random() < 0.7:
        at = random.randrange(len(value))
        if random.random() < 0.2:
            return value * random.choice((0, 2, 100))
        return [*value[:at], _changed(random, value[at]), *value[at + 1 :]]
    return random.choice(VALUES)


async def _turn(http: ModelHTTP, case: Case) -> SampledTurn | PartialTurn:
    if case.server is None:
        return await OpenAIChat(http).sample_turn(CALL)
    server: TokenServer = case.server(http)
    turn = PartialTurn(PROMPT, VOCABULARY, budget=BUDGET)
    async for chunk in server.stream(TokenRequest(key="k", model="m", prompt_ids=PROMPT, sampling=SAMPLING)):
        turn.add(chunk)
    return turn


def _check_error(error: ClothoError) -> None:
    text = str(error)
    assert for_line(text) == text, "an error's text is one plain line"
    assert KEY not in text
    sent = to_application_error(error, 1)
    assert sent.next_retry_delay is not None and sent.next_retry_delay.total_seconds() <= 3_600
    truncate_middle(text).encode()


def _check_turn(turn: SampledTurn | PartialTurn) -> None:
    if isinstance(turn, SampledTurn):
        written = turn.model_dump_json()
        assert SampledTurn.model_validate_json(written) == turn
        assert KEY not in written
        assert 0 <= turn.usage.completion_tokens <= 10**9
        json.dumps(turn.message.wire()).encode()
        return
    tokens = turn.tokens(VLLMGenerate.inference, "raw")
    assert SampledTokens.model_validate_json(tokens.model_dump_json()) == tokens
    assert len(tokens.ids) == len(tokens.logprobs) <= BUDGET
    assert all(0 <= token < VOCABULARY for token in tokens.ids)
    end = 0
    for span in tokens.versions:
        assert end <= span.start < span.end <= len(tokens.ids)
        end = span.end
