"""`clotho dev` and `clotho demo`: everything starts, stops in order, and is never left behind."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.cli import waiting
from clotho.errors import Unavailable
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import CLOTHO, alive, clotho, clotho_many, command_line, descendants, gone
from tests.cli.services import Dev
from tests.cluster import Cluster
from tests.support import ONE_FILE, PATIENCE_SECONDS, eventually


@pytest.fixture
async def dev(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Dev]:
    started = Dev(folder / request.node.name)
    yield started
    started.terminal.close()


@pytest.mark.slow
async def test_commands_find_the_services_of_their_store(dev: Dev) -> None:
    """On ports that nobody names again, in links too; until `dev` is gone, even if it was killed."""
    await dev.ready()
    quick = ScriptedModel(Script(conversations=(Conversation(variants=((ScriptedTurn(content="Done."),),)),)))
    async with serving(quick) as url:
        order = ("--run", "found", "--groups", "1", "--group-size", "1", "--model", url, "--store", dev.store)
        found = await clotho("run", ONE_FILE, *order)
    assert found.status == 0, found.error
    assert f"http://127.0.0.1:{dev.ui_port}/namespaces" in found.output
    os.kill(dev.terminal.pid, signal.SIGKILL)

    async def refused() -> bool:
        answer = await clotho("retry", "found", "--store", dev.store)
        return "no Temporal server answers at 127.0.0.1:7233" in answer.error

    await eventually(refused, "the killed server's address to be forgotten")


@pytest.mark.slow
async def test_an_outage_of_temporal_is_one_plain_line(dev: Dev) -> None:
    """While a run is followed: the client tries again for ever, and says nothing of each attempt."""
    started = await dev.ready()
    slow = ScriptedModel(Script(conversations=(Conversation(variants=((ScriptedTurn(),),)),), latency=600))
    async with serving(slow) as url:
        order = (
            "--run",
            "cut-off",
            "--groups",
            "1",
            "--group-size",
            "1",
            "--model",
            url,
            "--store",
            dev.store,
        )
        following = await asyncio.create_subprocess_exec(
            CLOTHO,
            "run",
            ONE_FILE,
            *map(str, order),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert following.stdout is not None
        try:

            async def asked() -> bool:
                return bool(slow.calls.requests)

            await eventually(asked, "a call to the model")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while b"1 running" not in await following.stdout.readline():
                    pass
            [temporal] = [pid for pid in started if b"start-dev" in command_line(pid)]
            os.kill(temporal, signal.SIGKILL)
            lines = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for line in following.stdout:
                    lines.append(line.decode())
                    if f"Temporal doesn't answer at 127.0.0.1:{dev.temporal_port}" in lines[-1]:
                        break
            assert "1 running" in lines[-1], "what was known of the run stays in view"
            assert not any("gRPC" in line or "retry" in line for line in lines)
        finally:
            following.kill()
            await following.wait()


@pytest.mark.slow
async def test_ctrl_c_waits_for_calls_in_flight_and_a_second_one_does_not(dev: Dev) -> None:
    started = await dev.ready()
    slow = ScriptedModel(Script(conversations=(Conversation(variants=((ScriptedTurn(),),)),), latency=600))
    async with serving(slow) as url:
        place = ("--store", dev.store, "--temporal", f"127.0.0.1:{dev.temporal_port}")
        run = ("--run", "slow", "--groups", "1", "--group-size", "1", "--model", url, "--detach")
        assert (await clotho("run", ONE_FILE, *run, *place)).status == 0

        async def asked() -> bool:
            return bool(slow.calls.requests)

        await eventually(asked, "a call to the model")
        dev.terminal.interrupt()
        await dev.terminal.until("stopping; workers finish the calls in flight")
        await asyncio.sleep(1)
        assert len(started - alive(started)) <= 1, "all but the workers that had nothing in flight"
        dev.terminal.interrupt()
        assert await dev.terminal.ended() == 0
    assert not alive(started)
    assert "Traceback" not in dev.terminal.shown


HANGING = ("hangs", "loops", "loops in C", "runs a program")


@pytest.mark.slow
async def test_a_second_ctrl_c_ends_verifiers_that_hang_and_what_they_have_started(dev: Dev) -> None:
    await dev.ready()
    folder = dev.store.parent
    begun, items = folder / "begun", folder / "items.jsonl"
    items.write_text("".join(json.dumps({"does": does}) + "\n" for does in HANGING))
    quick = ScriptedModel(Script(conversations=(Conversation(variants=((ScriptedTurn(content="Done."),),)),)))
    async with serving(quick) as url:
        order = ("--run", "hanging", "--group-size", "1", "--groups", "4", "--items", items, "--model", url)
        place = ("--set", f"begun={json.dumps(str(begun))}", "--store", dev.store, "--detach")
        started = await clotho("run", "tests.environments.hanging_verifier:Hanging", *order, *place)
        assert started.status == 0, started.error

        async def all_hang() -> set[int] | None:
            """Everything that runs, once the verifiers do and the last one's program too."""
            running = descendants(dev.terminal.pid)
            verifiers = set(map(int, begun.read_text().split())) if begun.exists() else set()
            sleeping = any(b"sleep" in command_line(pid) for each in verifiers for pid in descendants(each))
            return running if len(verifiers) == len(HANGING) and verifiers <= running and sleeping else None

        everything = await eventually(all_hang, "all verifiers hanging")
        try:
            dev.terminal.interrupt()
            await dev.terminal.until("stopping; workers finish the calls in flight")
            assert alive(set(map(int, begun.read_text().split()))), "the first Ctrl-C waits for them"
            dev.terminal.interrupt()
            assert await dev.terminal.ended() == 0
            await gone(everything)
        finally:
            for pid in alive(everything):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
async def test_nothing_outlives_killed_parents(dev: Dev) -> None:
    """The command and the workers' own parent are killed: neither can stop what it started."""
    started = await dev.ready()
    [parent] = [pid for pid in started if len(descendants(pid) & started) == 2]
    for pid in (dev.terminal.pid, parent):
        os.kill(pid, signal.SIGKILL)
    await gone(started)


async def test_ports_in_use_and_a_second_set_of_services_are_refused(folder: Path) -> None:
    here = folder / "ports"
    here.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        others = ("--temporal-port", str(free_port()), "--ui-port", str(free_port()))
        said = await clotho_many(
            {
                "temporal": ("dev", "--temporal-port", str(port)),
                "ui": ("dev", "--temporal-port", str(free_port()), "--ui-port", str(port)),
                "model": ("dev", *others, "--model-port", str(port)),
            },
            here,
        )
    assert {answer.status for answer in said.values()} == {1}
    for answer in said.values():
        assert f"clotho: port {port} is in use" in answer.error
        assert "Traceback" not in answer.error


async def test_workers_that_never_serve_are_given_up_with_their_last_words(
    private_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "START_SECONDS", 1.0)
    worker = ChildProcess(
        ["sh", "-c", "echo store: No space left on device; sleep 60"], private_cluster.folder / "worker.log"
    )
    await worker.start()

    async def speaks() -> bool:
        return "No space left" in worker.output

    try:
        await eventually(speaks, "its last words")
        with pytest.raises(Unavailable, match=r"don't serve after 1 s: store: No space left on device \["):
            await waiting.until_served(private_cluster.client, worker)
    finally:
        await worker.kill()


@pytest.mark.slow
async def test_the_demo_keeps_its_services_until_one_of_them_dies(folder: Path) -> None:
    store = folder / "demo" / "store"
    options = ("--groups", "1", "--group-size", "2", "--keep", "--store", store)
    process = await asyncio.create_subprocess_exec(
        CLOTHO, "demo", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    shown = ""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "services stay up until Ctrl-C" not in shown:
                line = (await process.stdout.readline()).decode()
                assert line, shown
                shown += line
        started = descendants(process.pid)
        second = await clotho("demo", "--store", store)
        [model] = [pid for pid in started if b"clotho.embedded.model" in command_line(pid)]
        os.kill(model, signal.SIGKILL)
        _, error = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 1
    assert error.decode().startswith("clotho: the embedded model ended: ")
    assert f"{store.parent}/logs/model.log" in error.decode()
    assert not alive(started)
    assert "no worker serves" not in shown
    assert "│ g000000 │" in shown
    assert (store.parent / "exports" / "demo-1.jsonl").read_text().count("\n") == 1
    assert f"clotho show demo-1/g000000/r0 --store {store}" in shown
    assert second.status == 1
    assert f"services for {store.parent} run already" in second.complaint
