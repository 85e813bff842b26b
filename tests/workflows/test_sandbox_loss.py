"""Sandboxes that are lost: followed by one like them, and what it was like is on record."""

import asyncio
import json
import os
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.api.enums.v1 import EventType

from clotho.identifiers.keys import call_key, lease_key, reward_key
from clotho.models.endpoint import Endpoint
from clotho.rollouts.call import CallEntry
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.verification import RewardEntry
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.request import RunRequest, run_manifest
from clotho.runs.rollouts import read_end
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.cgroups import usable
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.tools.shell import SLOT
from tests.cluster import FAST, Cluster
from tests.support import ONE_FILE, eventually, start, step_of
from tests.workflows.holding import LATER_TURNS, Holding
from tests.workflows.losses import (
    WAITS,
    diverging,
    journalled,
    kill_sandbox,
    lose_while_waiting,
    made,
    output,
    supervisor,
)
from tests.workflows.scripts import run, say

needs_evidence = pytest.mark.skipif(os.geteuid() != 0 or not usable(), reason="needs root and control groups")


def played(*turns: ScriptedTurn) -> Script:
    return Script(conversations=(Conversation(variants=((*turns, say("Done.")),)),), latency=0.3)


async def test_a_lost_sandbox_is_restored_where_it_was(cluster: Cluster) -> None:
    """Files, working directory and exports are there; nothing is run twice.

    Temporal is asked for the next sandbox: a rollout that was closed there must not take the lease from another.
    """
    rollout = "lost-between/g000000/r0"
    script = played(
        run("mkdir -p ~/deep && cd ~/deep && export A=5 && echo 0 >> /work/ran"),
        run("echo 1 >> /work/ran"),
        run("echo 2 >> /work/ran; echo $A $PWD $(cat /work/ran); echo -n 1 > /work/score"),
    )
    model = Holding(script, held=LATER_TURNS)
    async with serving(model) as url:
        handle = await start(cluster, "lost-between", url)
        await model.held(1)
        await kill_sandbox(cluster, rollout)
        model.release.set()
        await handle.result()
    assert (await output(cluster, rollout, "0002-00")).split() == ["5", "/home/agent/deep", "0", "1", "2"]
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert (end.summary.score, end.summary.losses) == (1.0, (Fidelity.EXACT,))
    history = await cluster.client.get_workflow_handle(rollout).fetch_history()
    activities = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    asked = [step_of(event) for event in history.events if event.event_type == activities]
    assert asked.count("restore sandbox (1)") == 1


@pytest.mark.slow
async def test_a_command_lost_with_its_sandbox_runs_in_the_next(cluster: Cluster) -> None:
    """It starts from the checkpoint before it: what it did half the first time is not there."""
    rollout = "lost-inside/g000000/r0"
    script = played(
        run("echo before > /work/log"),
        run(f"echo half >> /work/log; {WAITS}; cat /work/log"),
    )
    async with serving(ScriptedModel(script)) as url:
        handle = await start(cluster, "lost-inside", url)

        await lose_while_waiting(cluster, rollout)
        await handle.result()
    assert (await output(cluster, rollout, "0001-00")).split() == ["before", "half"]
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (Fidelity.EXACT,))


async def test_calls_since_the_checkpoint_are_replayed(cluster: Cluster) -> None:
    """Two calls of a turn are done, the third is lost: no checkpoint holds the two, so they are done again."""
    rollout = "replayed/g000000/r0"
    calls = tuple(
        ScriptedCall(name="terminal", arguments={"command": command})
        for command in (
            "cd /tmp && export B=7 && echo one > /work/one",
            "echo two > /work/two",
            f"{WAITS}; echo $B $PWD $(cat /work/one /work/two)",
        )
    )
    async with serving(ScriptedModel(played(ScriptedTurn(calls=calls)))) as url:
        handle = await start(cluster, "replayed", url)

        await lose_while_waiting(cluster, rollout)
        await handle.result()
    assert (await output(cluster, rollout, "0000-02")).split() == ["7", "/tmp", "one", "two"]
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (Fidelity.REPLAYED,))


@pytest.mark.slow
async def test_a_replay_that_comes_to_something_else_is_marked(cluster: Cluster) -> None:
    rollout = "diverged/g000000/r0"
    async with serving(ScriptedModel(played(diverging()))) as url:
        handle = await start(cluster, "diverged", url)
        await lose_while_waiting(cluster, rollout)
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.losses == (Fidelity.DIVERGED,)


@needs_evidence
@pytest.mark.slow
async def test_sandboxes_that_the_host_ends_are_not_the_policys_doing(cluster: Cluster) -> None:
    """Killed from the host, or their folder deleted, three times at one call: it is made in a fourth."""
    rollout = "host-kills/g000000/r0"
    async with serving(ScriptedModel(played(run(WAITS)))) as url:
        handle = await start(cluster, "host-kills", url)
        for number in range(3):
            await eventually(partial(made, cluster, rollout, number, "waiting"), "the command running")
            if number == 1:
                await cluster.sandboxes().destroy(lease_key(rollout, number))
            else:
                await kill_sandbox(cluster, rollout, number)
        file = await eventually(partial(made, cluster, rollout, 3, "waiting"), "it in the fourth sandbox")
        file.with_name("go").touch()
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert (end.summary.ending, end.summary.score) == (Ending(outcome=Outcome.COMPLETED), 1.0)
    assert len(end.summary.losses) == 3


@pytest.mark.slow
async def test_a_loss_stays_on_record_when_its_workflow_does_not(private_cluster: Cluster) -> None:
    """The workflow is terminated after its reward: the next one finds everything done, and meets no loss."""
    cluster, rollout = private_cluster, "remembered/g000000/r0"
    fail = cluster.folder / "fail"
    fail.mkdir()
    await cluster.start_worker(CLOTHO_FAIL="reward.journalled:pause@1", CLOTHO_FAIL_FOLDER=str(fail))
    async with serving(ScriptedModel(played(diverging()))) as url:
        handle = await start(cluster, "remembered", url)
        await lose_while_waiting(cluster, rollout)
        await eventually(lambda: asyncio.to_thread((fail / "reward.journalled").exists), "the reward written")
        await cluster.client.get_workflow_handle(rollout).terminate("lost by a test")
        (fail / "reward.journalled").unlink()
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert (end.summary.score, end.summary.losses) == (1.0, (Fidelity.DIVERGED,))


@needs_evidence
async def test_a_command_that_memory_ends_is_told_and_one_that_takes_its_sandbox_along_is_scored(
    cluster: Cluster,
) -> None:
    rollout, hog = "memory/g000000/r0", "python3 -c 'x = bytearray(1 << 30)'"
    # Small ones, each of which the kernel leaves alone while there is the supervisor to be ended.
    hogs = (
        "for n in $(seq 8); do python3 -c 'import time; x = bytearray(12 << 20); time.sleep(90)' & done; wait"
    )
    script = played(
        run("echo -n 0.5 > /work/score"),
        run(hog),
        run(f"touch /work/waiting; while [ ! -e /work/go ]; do sleep 0.1; done; {hogs}"),
    )
    async with serving(ScriptedModel(script)) as url:
        handle = await start_in(cluster, "memory", url, SandboxSpec(memory_mb=64))
        for number in range(3):
            await journalled(cluster, lease_key(rollout, number))

            async def waiting() -> Path | None:
                return next(cluster.folder.glob("sandboxes/*/sandboxes/*/disk/work/waiting"), None)

            file = await eventually(waiting, "the command waiting")
            adjustment = Path(f"/proc/{supervisor(cluster, lease_key(rollout, number))}/oom_score_adj")
            adjustment.write_text("1000")  # the kernel takes it first
            file.with_name("go").touch()

            async def gone(file: Path = file) -> bool:
                return not file.exists()

            await eventually(gone, "the lost sandbox cleared away")
        await handle.result()
    assert "ran out of memory" in await output(cluster, rollout, "0001-00")
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert end.summary.ending == Ending(outcome=Outcome.POLICY_KILLED, limit="memory")
    assert (end.summary.score, len(end.summary.losses)) == (0.5, 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="disks of their own need root")
@pytest.mark.slow
async def test_a_command_that_fills_its_sandbox_with_output_every_time_is_scored(cluster: Cluster) -> None:
    rollout = "flooded/g000000/r0"
    script = played(run("echo -n 0.5 > /work/score"), run("head -c 1G /dev/zero"))
    async with serving(ScriptedModel(script)) as url:
        await (await start_in(cluster, "flooded", url, SandboxSpec(disk_mb=40))).result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert end.summary.ending == Ending(outcome=Outcome.POLICY_KILLED, limit="disk")
    assert (end.summary.score, len(end.summary.losses)) == (0.5, 3)


async def start_in(cluster: Cluster, name: str, url: str, spec: SandboxSpec) -> CampaignHandle:
    """Start a run whose sandboxes are such ones."""
    order = RunRequest(
        manifest=run_manifest(ONE_FILE, name, "scripted", group_size=1).model_copy(update={"sandbox": spec}),
        endpoint=Endpoint(base_url=url),
        groups=1,
        max_open_groups=1,
        task_queues=FAST,
    )
    return await start_campaign(cluster.client, cluster.open_journal(), order)


@pytest.mark.slow
async def test_a_sandbox_lost_in_verification_is_verified_again_from_before(cluster: Cluster) -> None:
    rollout = "lost-verifying/g000000/r0"
    script = played(run("echo agent > /work/made"))
    async with serving(ScriptedModel(script)) as url:
        environment = "tests.environments.slow_verifier:SlowVerifier"
        handle = await cluster.start("lost-verifying", url, environment=environment, model="scripted")

        await eventually(lambda: made(cluster, rollout, 0, "verified"), "the verifier's first command done")
        await cluster.sandboxes().destroy(lease_key(rollout, 0))
        verified = await eventually(lambda: made(cluster, rollout, 1, "verified"), "it in the next sandbox")
        verified.with_name("go").touch()
        await handle.result()
    reward = await cluster.open_journal().read_required(reward_key(rollout), RewardEntry)
    assert (reward.score, reward.log, reward.epoch) == (1.0, "first second", 1)


@pytest.mark.slow
async def test_a_sandbox_that_verification_opened_itself_may_be_lost(private_cluster: Cluster) -> None:
    """A rollout without commands has none before: what it sampled is verified in another one."""
    cluster, rollout = private_cluster, "commandless/g000000/r0"
    fail = cluster.folder / "fail"
    fail.mkdir()
    await cluster.start_worker(CLOTHO_FAIL="reward.opened:pause", CLOTHO_FAIL_FOLDER=str(fail))
    async with serving(ScriptedModel(played())) as url:
        handle = await start(cluster, "commandless", url)
        opened = fail / "reward.opened"
        await eventually(lambda: asyncio.to_thread(opened.exists), "the verifier's sandbox")
        await cluster.sandboxes().destroy(lease_key(rollout, 0))
        opened.unlink()
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.losses == (Fidelity.EXACT,)


@pytest.mark.slow
async def test_what_an_attempt_in_a_lost_sandbox_journals_late_is_done_in_the_next(
    private_cluster: Cluster,
) -> None:
    """Its entry comes before the next sandbox's attempt looks for one, and the second time while that one runs."""
    cluster, rollout = private_cluster, "late/g000000/r0"
    fail = cluster.folder / "fail"
    fail.mkdir()
    script = played(
        run("mkdir -p ~/deep; echo 0 >> /work/log"),
        run(
            "cd ~/deep; echo 1 >> /work/log; touch /work/second; while [ ! -e /work/past ]; do sleep 0.1; done"
        ),
        run("cd ..; echo 2 >> /work/log; touch /work/third; while [ ! -e /work/go ]; do sleep 0.1; done"),
        run("echo $PWD $(cat /work/log); echo -n 1 > /work/score"),
    )
    async with serving(ScriptedModel(script)) as url:
        second, third = (call_key(rollout, call) for call in ("0001-00", "0002-00"))
        restored = f"restore.unpacked[{lease_key(rollout, 1)}]:pause"
        await cluster.start_worker(CLOTHO_FAIL=restored, CLOTHO_FAIL_FOLDER=str(fail))
        handle = await start(cluster, "late", url)
        await eventually(lambda: made(cluster, rollout, 0, "second"), "the second command running")
        await kill_sandbox(cluster, rollout, 0)
        unpacked = fail / "restore.unpacked"
        await eventually(lambda: asyncio.to_thread(unpacked.exists), "the next sandbox without the command")
        await write_late(cluster, second, lease=0)
        unpacked.unlink()
        await let_pass(cluster, rollout, 1)
        await eventually(lambda: made(cluster, rollout, 1, "third"), "the third command running")
        await kill_sandbox(cluster, rollout, 1)
        await let_pass(cluster, rollout, 2)
        file = await eventually(lambda: made(cluster, rollout, 2, "third"), "the third command running again")
        await write_late(cluster, third, lease=1)
        file.with_name("go").touch()
        await handle.result()
    assert (await output(cluster, rollout, "0003-00")).split() == ["/home/agent", "0", "1", "2"]
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert (end.summary.score, end.summary.losses) == (1.0, (Fidelity.REPLAYED, Fidelity.REPLAYED))


async def let_pass(cluster: Cluster, rollout: str, lease: int) -> None:
    """Have the second command end where it is replayed."""
    file = await eventually(lambda: made(cluster, rollout, lease, "second"), "the second command replayed")
    file.with_name("past").touch()


async def write_late(cluster: Cluster, key: str, lease: int) -> None:
    """Write the entry of an attempt that was cut off from its sandbox's end, and from Temporal."""
    state: dict[str, JsonValue] = {SLOT: {"job": "0" * 32}}
    content = json.dumps({"output": "", "exit_code": 0, "error": None})
    entry = CallEntry(
        tool="terminal",
        content=content,
        error=None,
        state=state,
        lease=lease,
        started=0.0,
        seconds=0.5,
        changes=True,
        exit_code=0,
    )
    assert await cluster.open_journal().write(key, entry) == entry
