"""Processes kept together: restarted, stopped, hurried, refused, and never left behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from clotho.embedded.temporal_server import TemporalServer
from tests.cli.command import CHECKOUT, alive, caught, command_line, descendants, gone, run
from tests.support import PATIENCE_SECONDS, eventually

PARENT = """
import asyncio, logging, sys
from clotho.processes.group import ProcessGroup, ProcessPlan
logging.basicConfig()
plans = [ProcessPlan(str(number), ("/bin/sh", "-c", script)) for number, script in enumerate(sys.argv[1:])]
sys.exit(asyncio.run(ProcessGroup(plans).run()))
"""
OBEDIENT = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
STUBBORN = "trap : TERM; while :; do sleep 0.05; done"


class Group:
    """A parent that keeps processes, one for each shell script."""

    def __init__(self, process: asyncio.subprocess.Process, size: int) -> None:
        self.process = process
        self._size = size

    async def children(self) -> set[int]:
        """The shells, once all of them have set their traps."""

        async def all_run() -> set[int] | None:
            found = {pid for pid in descendants(self.process.pid) if b"trap" in command_line(pid)}
            found = {pid for pid in found if signal.SIGTERM in caught(pid)}
            return found if len(found) == self._size else None

        return await eventually(all_run, "all children")


Start = Callable[..., Awaitable[Group]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    groups: list[Group] = []

    async def start_group(*scripts: str) -> Group:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PARENT, *scripts, stderr=asyncio.subprocess.PIPE, cwd=CHECKOUT
        )
        groups.append(Group(process, len(scripts)))
        return groups[-1]

    yield start_group
    for group in groups:
        if group.process.returncode is None:
            group.process.kill()
            await group.process.wait()


async def test_a_killed_process_is_started_again_and_all_stop_together(start: Start) -> None:
    group = await start(OBEDIENT, OBEDIENT)
    first = await group.children()
    victim = min(first)
    os.kill(victim, signal.SIGKILL)

    async def replaced() -> set[int] | None:
        now = await group.children()
        return now if victim not in now else None

    now = await eventually(replaced, "another process")
    assert len(now & first) == 1
    group.process.terminate()
    assert await asyncio.wait_for(group.process.wait(), PATIENCE_SECONDS) == 0
    assert not alive(now)


async def test_a_second_signal_ends_what_will_not_stop(start: Start) -> None:
    group = await start(STUBBORN, OBEDIENT)
    children = await group.children()
    group.process.terminate()

    async def one_left() -> bool:
        return len(alive(children)) == 1

    await eventually(one_left, "the obedient one's end")
    assert group.process.returncode is None
    group.process.send_signal(signal.SIGINT)
    await asyncio.wait_for(group.process.wait(), PATIENCE_SECONDS)
    assert not alive(children)


async def test_a_refused_configuration_ends_all(start: Start) -> None:
    group = await start(OBEDIENT, "sleep 0.3; exit 2 # trap")
    assert await asyncio.wait_for(group.process.wait(), PATIENCE_SECONDS) == 2


@pytest.mark.parametrize("script", [OBEDIENT, "trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.05; done"])
async def test_children_of_a_killed_parent_stop_too(start: Start, script: str) -> None:
    group = await start(script, script)
    children = await group.children()
    group.process.kill()
    await group.process.wait()
    await gone(children)


async def test_workers_refuse_in_one_line(folder: Path, temporal: TemporalServer) -> None:
    nowhere = ("--temporal", "127.0.0.1:9", "--store", folder / "refused")
    strange = {"CLOTHO_TEMPORAL__NAMESPACE": "nobody-made-it"}
    several, one, role, namespace = await asyncio.gather(
        run(sys.executable, "worker.py", *nowhere),
        run(sys.executable, "worker.py", *nowhere, "--roles", "llm"),
        run(sys.executable, "worker.py", "--roles", "llm,cook"),
        run(sys.executable, "worker.py", *nowhere, "--temporal", temporal.address, environment=strange),
    )
    assert namespace.status == 2
    assert (
        "Temporal has no namespace 'nobody-made-it'; make it with: temporal operator" in namespace.complaint
    )
    assert (several.status, one.status, role.status) == (2, 2, 2)
    assert "no Temporal server answers at 127.0.0.1:9: start one" in several.complaint
    assert "no Temporal server answers at 127.0.0.1:9: start one" in one.complaint
    assert role.complaint == "worker.py: unknown role 'cook': there are workflows, llm, tools"


async def test_workers_load_no_library_that_only_some_of_them_use() -> None:
    """Each takes a second or so of every process's start, and so of every recovery."""
    heavy = "{'openai', 'transformers', 'renderers', 'numpy', 'atroposlib'}"
    loaded = await run(sys.executable, "-c", f"import sys, worker; print({heavy} & set(sys.modules))")
    assert loaded.output == "set()\n", loaded.error


@pytest.mark.slow
async def test_adapters_load_nothing_that_only_some_of_them_use() -> None:
    """A trainer waits for its environments: beyond Atropos itself, an adapter is there in two seconds."""
    heavy = "{'temporalio.worker', 'activities', 'clotho.sandbox.local', 'clotho.models.backends', 'boto3'}"
    loaded = await run(
        sys.executable, "-c", f"import sys, atropos_adapter; print({heavy} & set(sys.modules))"
    )
    assert loaded.output == "set()\n", loaded.error
