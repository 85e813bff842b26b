"""Turns over real HTTP, against the scripted model."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from pydantic import ValidationError

from clotho.errors import ContextOverflow, InvalidInput, ModelRejected, ModelUnavailable
from clotho.models.backend import SampledTurn, TurnCall
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.openai_chat import OpenAIChat, request_body
from clotho.models.sampling import Sampling
from clotho.processes.ports import free_port
from clotho.testing.script import Conversation, Fault, Script, ScriptedCall, ScriptedTurn, terminal_turns
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.support import PATIENCE_SECONDS

KEY = "run/g000001/r0/turn/0000"
SECRET = "sk-very-secret"
ASK = ChatMessage(role="user", content="Do it.")
TOOL = {"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}


def turn_call(key: str = KEY, **fields: object) -> TurnCall:
    return TurnCall.model_validate(
        {"key": key, "model": "scripted", "messages": (ASK,), "tools": (TOOL,)} | fields
    )


def script(*faults: Fault, latency: float = 0.0) -> Script:
    return Script(conversations=(terminal_turns(1),), faults=faults, latency=latency)


@asynccontextmanager
async def connected(
    url: str, key: str | None = SECRET, timeout: float = PATIENCE_SECONDS
) -> AsyncIterator[OpenAIChat]:
    async with aclosing(ModelHTTP(url, key, timeout)) as http:
        yield OpenAIChat(http)


async def sample(
    model: ScriptedModel, call: TurnCall | None = None, timeout: float = PATIENCE_SECONDS
) -> SampledTurn:
    async with serving(model) as url, connected(url, timeout=timeout) as server:
        return await server.sample_turn(call or turn_call())


def test_no_other_thread_can_be_loading_what_the_client_looks_into() -> None:
    """Tools load httpx in a thread, at a worker's first command: calls of that moment failed."""
    loaded = "import sys, clotho.models.openai_chat; sys.exit('httpx' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded]).returncode == 0


async def test_a_turn_and_the_next() -> None:
    model = ScriptedModel(script())
    async with serving(model) as url, connected(url) as server:
        first = await server.sample_turn(turn_call())
        (call,) = first.message.tool_calls
        result = ChatMessage(role="tool", content="", tool_call_id=call.id)
        second = await server.sample_turn(turn_call(KEY[:-1] + "1", messages=(ASK, first.message, result)))
    assert (call.function.name, call.function.arguments) == ("terminal", '{"command": "true"}')
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    assert (second.message.content, second.message.tool_calls) == ("Done.", ())
    assert second.usage.prompt_tokens > first.usage.prompt_tokens > 0 < first.usage.completion_tokens
    assert (first.provider_request_id, first.system_fingerprint) == ("request-1", "scripted")
    assert SampledTurn.model_validate_json(first.model_dump_json()) == first
    assert model.calls.completed == {KEY: 1, KEY[:-1] + "1": 1}


def test_everything_is_sent_that_a_server_would_choose_a_default_for() -> None:
    body = request_body(turn_call(sampling=Sampling(seed=7, max_tokens=9)))
    assert body == {
        "messages": [{"role": "user", "content": "Do it."}],
        "tools": [TOOL],
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": 9,
        "seed": 7,
    }


def test_parameters_can_be_left_out_and_added() -> None:
    sampling = Sampling(
        top_k=None, min_p=None, repetition_penalty=None, extra_body={"reasoning_effort": "low"}
    )
    body = request_body(turn_call(sampling=sampling, tools=()))
    assert body.keys() == {"messages", "temperature", "top_p", "reasoning_effort"}


def test_extra_body_cannot_replace_the_turn() -> None:
    with pytest.raises(ValidationError, match="messages, stream"):
        Sampling(extra_body={"stream": True, "messages": []})


async def test_arguments_that_are_no_json_come_through() -> None:
    broken = ScriptedTurn(calls=(ScriptedCall(name="terminal", arguments='{"command": '),))
    turn = await sample(ScriptedModel(Script(conversations=(Conversation(variants=((broken,),)),))))
    assert turn.message.tool_calls[0].function.arguments == '{"command": '


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(kind="status", status=429, headers={"retry-after": "2"}, requests=(1,)), ModelUnavailable),
        (Fault(kind="status", status=503, requests=(1,)), ModelUnavailable),
        (Fault(kind="status", status=401, requests=(1,)), ModelRejected),
        (
            Fault(kind="status", status=404, message=f"{SECRET} has no such model", requests=(1,)),
            ModelRejected,
        ),
        (Fault(kind="status", status=400, message="maximum context length", requests=(1,)), ContextOverflow),
        (Fault(kind="drop", requests=(1,)), ModelUnavailable),
        (Fault(kind="garbage", requests=(1,)), ModelUnavailable),
        (Fault(kind="empty_choices", requests=(1,)), ModelUnavailable),
        (Fault(kind="hang", requests=(1,)), ModelUnavailable),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else value.__name__,
)
async def test_faults(fault: Fault, kind: type[Exception]) -> None:
    model = ScriptedModel(script(fault))
    with pytest.raises(kind) as caught:
        await sample(model, timeout=0.5 if fault.kind == "hang" else PATIENCE_SECONDS)
    assert SECRET not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
    assert model.calls.completed == {}


async def test_retry_after_is_carried() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        await sample(ScriptedModel(script(Fault(kind="status", headers={"retry-after": "2"}, every=1))))
    assert caught.value.retry_after is not None
    assert caught.value.retry_after.total_seconds() == 2


async def test_nobody_listens() -> None:
    async with connected(f"http://127.0.0.1:{free_port()}/v1") as server:
        with pytest.raises(ModelUnavailable, match="no answer") as caught:
            await server.sample_turn(turn_call())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@127.0.0.1/v1",
        f"user:{SECRET}@127.0.0.1/v1",
        f"http://127.0.0.1/v1?key={SECRET}",
        f"http://127.0.0.1/v1#{SECRET}",
    ],
)
def test_urls_that_hold_keys_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match="--api-key-env") as caught:
        ModelHTTP(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "host:8000", "ftp://host/v1", "http://", "http://host:99999/v1", "http://a b/"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="no URL of a model server"):
        ModelHTTP(url)


async def test_check_asks_the_list_and_then_the_model() -> None:
    model = ScriptedModel(script(Fault(kind="status", status=404, requests=(1,))))
    async with serving(model) as url, connected(url) as server:
        await server.check("scripted")
        assert model.calls.requests == {}
        with pytest.raises(ModelRejected):
            await server.check("unknown")
        await server.check("an alias")


async def test_check_says_that_the_url_is_wrong() -> None:
    async with serving(ScriptedModel(script())) as url, connected(url.replace("/v1", "/v1/chat")) as server:
        await server.check("scripted")
        with pytest.raises(ModelRejected, match="404"):
            await server.sample_turn(turn_call())


async def test_hundreds_of_calls_at_once() -> None:
    model = ScriptedModel(script(latency=0.5))
    async with serving(model) as url, connected(url) as server:
        turns = await asyncio.gather(*(server.sample_turn(turn_call(f"k/{n}")) for n in range(300)))
    assert len(turns) == 300 == model.calls.completed.total()
    assert model.calls.paid_twice == {}
