"""A run whose model server answers few requests at a time."""

import asyncio
import threading

import pytest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from clotho.models.endpoint import Endpoint
from clotho.models.pace_pages import shown_pages
from clotho.models.pacing import pace_texts
from clotho.testing.script import Conversation, Question, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.scripts import say

WIDTH = 10
NEAR = range(8, 13)
"""Widths within 20 % of it."""
LOOKS = 20
"""A quarter of a second apart, in which the width stays near."""


class Narrow:
    """Refuses completions while WIDTH are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith("/completions"):
            return await self._app(scope, receive, send)
        if self._open >= WIDTH:
            return await JSONResponse({"error": {"message": "too many"}}, 429)(scope, receive, send)
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1


@pytest.mark.slow
async def test_a_run_settles_at_the_width_that_its_model_server_takes(cluster: Cluster) -> None:
    """Its rollouts go on until it has."""
    settled = threading.Event()

    def turn(question: Question) -> ScriptedTurn:
        if settled.is_set():
            return say("Done.")
        return ScriptedTurn(calls=(ScriptedCall(name="todo", arguments={}),))

    model = ScriptedModel(
        Script(conversations=(Conversation(variants=((say("Done."),),)),), latency=3.0), turn
    )
    model.app.add_middleware(Narrow)
    async with serving(model) as url:
        run = await start(
            cluster, "narrow", url, groups=3, group_size=8, overrides={"max_agent_turns": 10_000}
        )
        journal, server, near = cluster.open_journal(), Endpoint(base_url=url), 0

        async def stays_near() -> bool:
            nonlocal near
            pages = await shown_pages(journal, server)
            width = max((page.width for page in pages), key=lambda width: width.changes, default=None)
            near = near + 1 if width is not None and width.width in NEAR else 0
            await asyncio.sleep(0.2)
            return near >= LOOKS

        try:
            await eventually(stays_near, "a width within 20 % of what the server takes", 300)
            texts = await eventually(lambda: pace_texts(journal, server), "the width in words")
        finally:
            settled.set()
        done = await run.result()
    assert (done.scored, done.failed) == (3, 0)
    assert set(model.calls.completed.values()) == {1}, "each was paid once"
    assert len(texts) == 1
    assert "requests at once" in texts[0]
