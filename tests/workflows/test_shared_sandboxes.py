"""Delegated tasks in the sandbox of the rollout that delegates them: one shell, and one ladder when it is lost."""

from functools import partial

import pytest

from clotho.identifiers.ids import call_order
from clotho.identifiers.keys import call_key, lease_key
from clotho.rollouts.call import CallEntry
from clotho.rollouts.lease import Fidelity, LeaseEntry
from clotho.run_settings import CheckpointPolicy, RunSettings
from clotho.runs.repairs import group_repairs
from clotho.testing.script import ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.environments.delegating import NAME, delegates, script
from tests.support import eventually
from tests.workflows.losses import WAITS, kill_sandbox, made, output
from tests.workflows.scripts import run, say
from tests.workflows.test_delegation import ended

SHARED = {"sandbox": "shared"}
LOG = "cat /work/log"


def shared(**settings: object) -> RunSettings:
    return RunSettings(delegation=SHARED | settings)


def adds(name: str) -> ScriptedTurn:
    return run(f"echo {name} >> /work/log")


async def test_a_child_works_in_its_parents_sandbox_and_shell(cluster: Cluster) -> None:
    turns = (run("mkdir -p /work/sub && cd /work/sub && export NAME=parent"), delegates("work"))
    works = (run("pwd; echo $NAME; echo done > found; cd /work; export NAME=child"), say("Done."))
    after = (run("pwd; echo $NAME; cat sub/found; echo -n 1 > score"), say("Done."))
    model = ScriptedModel(script(*turns, *after, work=works))
    async with serving(model) as url:
        handle = await cluster.start("shared", url, environment=NAME, settings=shared())
        await handle.result()
    rollout = "shared/g000000/r0"
    child = f"{rollout}~0001-00"
    assert (await output(cluster, child, "0000-00")).split() == ["/work/sub", "parent"]
    assert (await output(cluster, rollout, "0002-00")).split() == ["/work", "child", "done"]
    parent, did = await ended(cluster, rollout), await ended(cluster, child)
    assert (parent.score, parent.losses, did.losses) == (1.0, (), ())
    assert did.left is not None and did.left.shell == "0001-00~0000-00"
    journal = cluster.open_journal()
    assert await journal.read(lease_key(child, 0), LeaseEntry) is None
    assert not [held for held in await cluster.sandboxes().leases() if held.lease.startswith(rollout)]


async def test_a_child_may_be_the_first_to_need_the_sandbox(cluster: Cluster) -> None:
    turns = (delegates("first"), delegates("second"), run(f"{LOG}; echo -n 1 > /work/score"), say("Done."))
    firsts, seconds = (adds("one"), say("One.")), (adds("two"), say("Two."))
    async with serving(ScriptedModel(script(*turns, first=firsts, second=seconds))) as url:
        handle = await cluster.start("shared-first", url, environment=NAME, settings=shared())
        await handle.result()
    rollout = "shared-first/g000000/r0"
    assert (await output(cluster, rollout, "0002-00")).split() == ["one", "two"]
    assert (await ended(cluster, rollout)).score == 1.0
    assert not [held for held in await cluster.sandboxes().leases() if held.lease.startswith(rollout)]


@pytest.mark.parametrize("checkpoints", [CheckpointPolicy.EVERY_TURN, CheckpointPolicy.OFF])
async def test_a_sandbox_lost_under_a_child_is_restored_once(
    cluster: Cluster, checkpoints: CheckpointPolicy
) -> None:
    """With the calls of the parent, of the child before it, and of the child itself, in their order."""
    name = f"lost-under-{checkpoints.replace('_', '-')}"
    rollout = f"{name}/g000000/r0"
    turns = (adds("one"), delegates("first"), adds("three"), delegates("second"), run(LOG), say("Done."))
    firsts = (adds("two"), say("Two."))
    seconds = (adds("four"), run(f"cd /tmp; {WAITS}"), run(f"pwd; {LOG}; cd /work"), say("Four."))
    settings = shared().model_copy(update={"checkpoints": checkpoints})
    async with serving(ScriptedModel(script(*turns, first=firsts, second=seconds))) as url:
        handle = await cluster.start(name, url, environment=NAME, settings=settings)
        await eventually(partial(made, cluster, rollout, 0, "waiting"), "the child's command")
        await kill_sandbox(cluster, rollout)
        again = await eventually(partial(made, cluster, rollout, 1, "waiting"), "it in the next sandbox")
        again.with_name("go").touch()
        await handle.result()
    second = f"{rollout}~0003-00"
    log = ["one", "two", "three", "four"]
    assert (await output(cluster, second, "0002-00")).split() == ["/tmp", *log]
    assert (await output(cluster, rollout, "0004-00")).split() == log
    expected = Fidelity.REPLAYED if checkpoints is CheckpointPolicy.OFF else Fidelity.EXACT
    parent = await ended(cluster, rollout)
    assert (parent.score, parent.losses) == (1.0, (expected,))
    journal = cluster.open_journal()
    lease = await journal.read_required(lease_key(rollout, 1), LeaseEntry)
    assert call_order(lease.replayed_through) == call_order("0003-00~0000-00")
    assert await journal.read(lease_key(rollout, 2), LeaseEntry) is None


async def test_a_sandbox_lost_after_a_child_is_restored_with_what_that_did(cluster: Cluster) -> None:
    rollout = "lost-after/g000000/r0"
    turns = (adds("one"), delegates("first"), run(f"cd /work; {WAITS}"), run(f"pwd; {LOG}"), say("Done."))
    firsts = (adds("two"), run("mkdir -p /work/sub; cd /work/sub; export KEPT=kept"), say("Two."))
    settings = shared().model_copy(update={"checkpoints": CheckpointPolicy.OFF})
    async with serving(ScriptedModel(script(*turns, first=firsts))) as url:
        handle = await cluster.start("lost-after", url, environment=NAME, settings=settings)
        await eventually(partial(made, cluster, rollout, 0, "waiting"), "the command")
        await kill_sandbox(cluster, rollout)
        again = await eventually(partial(made, cluster, rollout, 1, "waiting"), "it in the next sandbox")
        again.with_name("go").touch()
        await handle.result()
    assert (await output(cluster, rollout, "0003-00")).split() == ["/work", "one", "two"]
    parent = await ended(cluster, rollout)
    assert (parent.score, parent.losses) == (1.0, (Fidelity.REPLAYED,))


@pytest.mark.slow
async def test_a_repaired_parent_restores_what_its_unfinished_child_did(cluster: Cluster) -> None:
    rollout, child = "repaired-shared/g000000/r0", "repaired-shared/g000000/r0~0001-00"
    turns = (adds("one"), delegates("first"), run(f"{LOG}; echo -n 1 > /work/score"), say("Done."))
    firsts = (adds("two"), run(f"{WAITS}; echo three >> /work/log"), run(LOG), say("Three."))
    model = ScriptedModel(script(*turns, first=firsts))
    async with serving(model) as url:
        handle = await cluster.start("repaired-shared", url, environment=NAME, settings=shared())
        await eventually(partial(made, cluster, rollout, 0, "waiting"), "the child's command")
        await cluster.client.get_workflow_handle(rollout).terminate("to be repaired")
        again = await eventually(partial(made, cluster, rollout, 1, "waiting"), "it in the next sandbox")
        again.with_name("go").touch()
        await handle.result()
    assert (await output(cluster, child, "0002-00")).split() == ["one", "two", "three"]
    assert (await output(cluster, rollout, "0002-00")).split() == ["one", "two", "three"]
    assert (await ended(cluster, rollout)).score == 1.0
    assert len(await group_repairs(cluster.open_journal(), "repaired-shared/g000000")) == 1
    assert set(model.calls.requests.values()) == {1}
    entry = await cluster.open_journal().read_required(call_key(rollout, "0001-00"), CallEntry)
    assert entry.child == child


async def test_a_sandbox_lost_under_a_grandchild_is_restored_with_all_that_was_done(cluster: Cluster) -> None:
    rollout = "grandchild/g000000/r0"
    child = f"{rollout}~0001-00"
    turns = (adds("one"), delegates("first"), run(f"{LOG}; echo -n 1 > /work/score"), say("Done."))
    firsts = (adds("two"), delegates("second"), adds("five"), say("Five."))
    seconds = (adds("three"), run(f"{WAITS}; echo four >> /work/log"), say("Four."))
    settings = shared(depth=2).model_copy(update={"checkpoints": CheckpointPolicy.OFF})
    model = ScriptedModel(script(*turns, first=firsts, second=seconds))
    async with serving(model) as url:
        handle = await cluster.start("grandchild", url, environment=NAME, settings=settings)
        await eventually(partial(made, cluster, rollout, 0, "waiting"), "the grandchild's command")
        await kill_sandbox(cluster, rollout)
        again = await eventually(partial(made, cluster, rollout, 1, "waiting"), "it in the next sandbox")
        again.with_name("go").touch()
        await handle.result()
    assert (await output(cluster, rollout, "0002-00")).split() == ["one", "two", "three", "four", "five"]
    ends = [await ended(cluster, each) for each in (rollout, child, f"{child}~0001-00")]
    assert [end.losses for end in ends] == [(Fidelity.REPLAYED,)] * 3
    assert ends[0].delegated_tokens == ends[1].sampled_tokens + ends[2].sampled_tokens
    assert set(model.calls.requests.values()) == {1}
