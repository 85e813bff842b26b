"""Temporal stands still, and workers lose the tasks of workflows in which they sample turns and call tools."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.runs.rollouts import read_end
from clotho.temporal.sdk_logs import LONG_TASK, core
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import FAST, cluster_in
from tests.environments.half_seconds import NAME
from tests.support import PATIENCE_SECONDS, eventually
from tests.workflows.scripts import say

NOTES, ROLLOUTS, WORKERS = 20, 8, 2
STALL_SECONDS = FAST.workflow_task_timeout.total_seconds() + 2


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[TemporalServer]:
    server = TemporalServer(await temporal_binary(), folder / "stalled.log", ui_port=None)
    await server.start(PATIENCE_SECONDS)
    yield server
    await server.stop()


@pytest.mark.slow
async def test_nothing_is_paid_for_or_done_twice(server: TemporalServer, folder: Path) -> None:
    note = ScriptedTurn(calls=(ScriptedCall(name="note", arguments={}),))
    notes = Conversation(variants=((*[note] * NOTES, say("Done.")),))
    model = ScriptedModel(Script(conversations=(notes,), latency=0.3))
    async with cluster_in(server, folder / "stalled", "default") as cluster, serving(model) as url:
        for _ in range(WORKERS):
            await cluster.start_worker(CLOTHO_LOG_FORMAT="json")
        handle = await cluster.start("stalled", url, environment=NAME, group_size=ROLLOUTS)
        for turns in (2, NOTES // 2):

            async def so_many(turns: int = turns) -> bool:
                return model.calls.completed.total() >= turns * ROLLOUTS

            await eventually(so_many, f"{turns} turns of each rollout")
            assert server.pid is not None
            os.kill(server.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(STALL_SECONDS)
            finally:
                os.kill(server.pid, signal.SIGCONT)
        await handle.result()
        for number in range(ROLLOUTS):
            end = await read_end(cluster.open_journal(), f"stalled/g000000/r{number}")
            assert end is not None and end.summary.score == NOTES
        logs = [worker.log.read_text() for worker in cluster.workers]
    assert set(model.calls.requests.values()) == {1}
    lines = [json.loads(line) for log in logs for line in log.splitlines()]
    said = [line["message"] for line in lines if line["logger"] == core.name]
    assert [message for message in said if message.startswith("Task not found")], "the tasks were lost"
    assert not [message for message in said if message.startswith(LONG_TASK)]
