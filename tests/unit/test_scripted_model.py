"""The scripted model: what it decides from, what it counts, and as a process of its own."""

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from clotho.models.messages import ChatMessage
from clotho.processes.child import ChildProcess
from clotho.testing.script import Conversation, Fault, Question, Script, ScriptedTurn, terminal_turns
from clotho.testing.scripted_model import PaidCalls, ScriptedModel, serving
from tests.support import PATIENCE_SECONDS

SCRIPT = Script(conversations=(terminal_turns(1),))


def question(prompt: str = "Do it.", turns: int = 0, key: str = "") -> Question:
    past = [ChatMessage(role="assistant", content="…")] * turns
    return Question(key=key, model="m", messages=(ChatMessage(role="user", content=prompt), *past))


def said(content: str) -> ScriptedTurn:
    return ScriptedTurn(content=content)


async def ask(client: httpx.AsyncClient, key: str) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "Do it."}]}
    return await client.post("chat/completions", json=body, headers={"idempotency-key": key})


def test_conversations_by_prompt_turn_and_sibling() -> None:
    script = Script(
        conversations=(
            Conversation(match="count", variants=((said("one"), said("two")), (said("eins"),))),
            terminal_turns(2),
        )
    )
    assert script.answer(question("count files")).content == "one"
    assert script.answer(question("count files", turns=1)).content == "two"
    assert script.answer(question("count files", turns=9)).content == "two"
    assert script.answer(question("count files", key="run/g000000/r1/turn/0000")).content == "eins"
    assert script.answer(question("count files", key="run/g000000/r3.1/turn/0000")).content == "eins"
    assert [bool(script.answer(question(turns=turn)).calls) for turn in range(4)] == [
        True,
        True,
        False,
        False,
    ]


def test_latency_spread_is_the_same_every_time() -> None:
    script = Script(conversations=(terminal_turns(1),), latency=1.0, latency_spread=2.0)
    assert script.seconds("a") == script.seconds("a") != script.seconds("b")
    assert all(1.0 <= script.seconds(str(key)) < 3.0 for key in range(50))


def test_when_faults_strike() -> None:
    strikes = [
        (request, attempt)
        for fault in (Fault(kind="drop", requests=(2,)), Fault(kind="drop", every=3))
        for request, attempt in ((1, 1), (2, 1), (3, 1), (6, 2))
        if fault.applies(request, attempt)
    ]
    assert strikes == [(2, 1), (3, 1), (6, 2)]
    assert [Fault(kind="drop", first_attempts=2).applies(9, attempt) for attempt in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


async def test_the_same_question_gets_the_same_bytes() -> None:
    async with (
        serving(ScriptedModel(SCRIPT)) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client,
    ):
        first, second = await ask(client, "a"), await ask(client, "a")
        counts = (await client.get(url.replace("/v1", "/calls"))).json()
    assert first.content == second.content
    assert counts == {"requests": {"a": 2}, "completed": {"a": 2}}


async def test_a_policy_in_the_script_s_stead() -> None:
    model = ScriptedModel(
        Script(conversations=(terminal_turns(1),)), policy=lambda asked: said(asked.prompt.upper())
    )
    async with serving(model) as url, httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        answer = (await ask(client, "a")).json()
    assert answer["choices"][0]["message"]["content"] == "DO IT."


async def test_a_caller_that_leaves_has_not_been_answered() -> None:
    """It leaves while the model thinks, which it does until then."""
    thinking, left = threading.Event(), threading.Event()

    def policy(asked: Question) -> ScriptedTurn:
        if asked.key == "left":
            thinking.set()
            assert left.wait(PATIENCE_SECONDS)
        return said("Done.")

    # The latency is what the server needs to see that the connection is closed.
    model = ScriptedModel(SCRIPT.model_copy(update={"latency": 0.05}), policy=policy)
    async with serving(model) as url, httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        leaving = asyncio.create_task(ask(client, "left"))
        assert await asyncio.to_thread(thinking.wait, PATIENCE_SECONDS)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        left.set()
        await ask(client, "stayed")
    assert model.calls.requests == {"left": 1, "stayed": 1}
    assert model.calls.completed == {"stayed": 1}


async def test_malformed_messages_are_refused() -> None:
    async with (
        serving(ScriptedModel(SCRIPT)) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client,
    ):
        body = {"model": "m", "messages": [{"role": "user", "contents": "typo"}]}
        assert (await client.post("chat/completions", json=body)).status_code == 400


async def test_answers_come_without_delay() -> None:
    """Nagle's algorithm and delayed acknowledgement make 40 ms of every answer on a kept connection."""
    sent_at_once: list[int] = []

    class Watched:
        """Looks at the connection of each request, which uvicorn's receive() belongs to."""

        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            connection = cast(Any, receive).__self__.transport.get_extra_info("socket")
            sent_at_once.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            await self._app(scope, receive, send)

    model = ScriptedModel(SCRIPT)
    model.app.add_middleware(Watched)
    async with serving(model) as url, httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        for number in range(3):
            await ask(client, str(number))
    assert len(sent_at_once) == 3 and all(sent_at_once)


async def test_counts_outlive_a_killed_process(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(SCRIPT.model_dump_json())
    command = [sys.executable, "-m", "clotho.testing.scripted_model", str(tmp_path / "script.json")]
    server = ChildProcess([*command, "--log", str(tmp_path / "paid")], tmp_path / "output")
    await server.start()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (url := (tmp_path / "output").read_text().partition("\n")[0]).startswith("http"):
                await asyncio.sleep(0.02)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
            await ask(client, "a/turn/0000")
    finally:
        await server.kill()
    assert [json.loads(line) for line in (tmp_path / "paid").read_text().splitlines()] == ["a/turn/0000"]
    assert PaidCalls(tmp_path / "paid").completed == {"a/turn/0000": 1}
