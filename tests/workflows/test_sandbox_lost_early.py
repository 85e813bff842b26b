"""Sandboxes that are lost while they are made, and checkpoints that are lost with them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from temporalio.exceptions import ActivityError, ApplicationError

from clotho.errors import SandboxDisrupted, SandboxLost
from clotho.identifiers.keys import blob_key, lease_key
from clotho.rollouts.item import Item
from clotho.rollouts.lease import Fidelity, Lease
from clotho.rollouts.outcome import Limits
from clotho.rollouts.rollout import RolloutRequest, RolloutState
from clotho.rollouts.task_queues import TaskQueues
from clotho.run_settings import Acquire, RunSettings
from clotho.runs.rollouts import read_end
from clotho.temporal.failures import to_application_error
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.losses import kill_sandbox, made, output
from tests.workflows.scripts import run, say
from workflows.sandbox_session import SandboxRepeatedlyLost, SandboxSession

WAITS = "touch /work/waiting; while [ ! -e /work/go ]; do sleep 0.05; done"
Session = TypeVar("Session", bound=SandboxSession)
COUNTS = "echo $(cat /work/log); echo -n 1 > /work/score"


def played(*turns: ScriptedTurn) -> Script:
    return Script(conversations=(Conversation(variants=((*turns, say("Done.")),)),))


async def start_pausing_worker(cluster: Cluster, point: str) -> Path:
    """Returns the file that appears at the fail point, to be removed for the worker to go on."""
    folder = cluster.folder / "fail"
    folder.mkdir()
    await cluster.start_worker(CLOTHO_FAIL=f"{point}:pause", CLOTHO_FAIL_FOLDER=str(folder))
    return folder / point


async def lose_at(cluster: Cluster, paused: Path, lease: str) -> None:
    await eventually(lambda: asyncio.to_thread(paused.exists), "the sandbox made")
    await cluster.sandboxes().destroy(lease)
    paused.unlink()


@pytest.mark.parametrize("acquire", Acquire)
@pytest.mark.slow
async def test_a_sandbox_lost_with_the_item_s_files_half_there(
    private_cluster: Cluster, acquire: Acquire
) -> None:
    cluster, rollout = private_cluster, "lost-fresh/g000000/r0"
    item: Item = {
        "kind": "append",
        "path": "/work/notes",
        "text": "last",
        "lines": ["first"],
        "prompt": "Append.",
    }
    paused = await start_pausing_worker(cluster, "sandbox.created")
    async with serving(ScriptedModel(played(run("echo last >> /work/notes")))) as url:
        handle = await cluster.start(
            "lost-fresh",
            url,
            environment="file_tasks",
            items=(item,),
            settings=RunSettings(acquire=acquire),
        )
        await lose_at(cluster, paused, lease_key(rollout, 0))
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())


@pytest.mark.slow
async def test_a_sandbox_lost_while_calls_are_replayed_in_it(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "lost-replaying/g000000/r0"
    calls = ("echo one > /work/log", WAITS, COUNTS)
    turn = ScriptedTurn(
        calls=tuple(ScriptedCall(name="terminal", arguments={"command": call}) for call in calls)
    )
    paused = await start_pausing_worker(cluster, "restore.unpacked")
    async with serving(ScriptedModel(played(turn))) as url:
        handle = await start(cluster, "lost-replaying", url)
        await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the second command")
        await kill_sandbox(cluster, rollout)
        await lose_at(cluster, paused, lease_key(rollout, 1))
        file = await eventually(lambda: made(cluster, rollout, 1, "waiting"), "it in the next sandbox")
        file.with_name("go").touch()
        await handle.result()
    assert await output(cluster, rollout, "0000-02") == "one"
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (Fidelity.REPLAYED,))


async def test_without_its_checkpoint_everything_is_replayed(cluster: Cluster) -> None:
    rollout = "lost-checkpoint/g000000/r0"
    turns = (run("echo 1 >> /work/log"), run("echo 2 >> /work/log"), run(WAITS), run(COUNTS))
    async with serving(ScriptedModel(played(*turns))) as url:
        handle = await start(cluster, "lost-checkpoint", url)
        await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the third command")
        for blob in (cluster.store / blob_key(rollout, "x")).parent.iterdir():
            blob.unlink()
        await kill_sandbox(cluster, rollout)
        file = await eventually(lambda: made(cluster, rollout, 1, "waiting"), "it in the next sandbox")
        file.with_name("go").touch()
        await handle.result()
    assert await output(cluster, rollout, "0003-00") == "1 2"
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (Fidelity.REPLAYED,))


class NeverMade(SandboxSession):
    """Sandboxes that are lost while they are made, each time."""

    exhausted: tuple[str, ...] = ()

    async def get(self, turns: int) -> Lease:
        cause = ApplicationError("lost", *self.exhausted, type=SandboxLost.__name__, non_retryable=True)
        raise failed_by(cause)


def failed_by(cause: ApplicationError) -> ActivityError:
    error = ActivityError(
        "a step",
        scheduled_event_id=0,
        started_event_id=0,
        identity="",
        activity_type="step",
        activity_id="",
        retry_state=None,
    )
    error.__cause__ = cause
    return error


class Restored(SandboxSession):
    """Sandboxes of a backend that may tell its commands' doing from its host's."""

    proven = True

    async def get(self, turns: int) -> Lease:
        number = 0 if self.lease is None else self.lease.number + self.lost
        self.lease, self.lost = Lease(number=number, queue="host", proven=self.proven), False
        return self.lease


def session_of(kind: type[Session], state: RolloutState | None = None) -> Session:
    limits, queues = Limits(max_turns=1), TaskQueues()
    return kind(
        RolloutRequest(
            run="r", rollout="r/g/r0", environment="e", limits=limits, task_queues=queues, state=state
        )
    )


HOSTS, MEMORY, DISRUPTED = SandboxLost("gone"), SandboxLost("oom", "memory"), SandboxDisrupted("killed")


@pytest.mark.parametrize(
    ("proven", "losses", "limit", "used"),
    [
        (True, [HOSTS] * 20, None, 11),
        (True, [MEMORY] * 20, "memory", 3),
        (True, [DISRUPTED] * 20, "disrupted", 3),
        (True, [MEMORY, HOSTS] * 10, "memory", 5),
        (True, [HOSTS] * 10 + [MEMORY], "memory", 11),
        (False, [HOSTS] * 20, "unproved", 3),
        (False, [MEMORY] * 20, "memory", 3),
    ],
)
async def test_losses_at_a_step_count_where_evidence_tells_of_commands_or_nothing_can(
    proven: bool, losses: Sequence[SandboxLost], limit: str | None, used: int
) -> None:
    session = session_of(Restored)
    session.proven = proven
    worked: list[int] = []

    async def work(lease: Lease) -> None:
        worked.append(lease.number)
        raise failed_by(to_application_error(losses[len(worked) - 1], 1))

    with pytest.raises(ApplicationError) as raised:
        await session.use(work, turns=0)
    assert worked == [*range(used)]
    assert (raised.value.limit if isinstance(raised.value, SandboxRepeatedlyLost) else None) == limit
    assert raised.value.type == SandboxLost.__name__


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("exhausted", [(), ("disk",)])
async def test_sandboxes_lost_while_they_are_made_are_the_policys_doing_only_where_commands_used_them_up(
    restored: bool, exhausted: tuple[str, ...]
) -> None:
    state = RolloutState(lease=Lease(number=0, queue="host")) if restored else None
    session = session_of(NeverMade, state)
    session.exhausted = exhausted

    async def work(lease: Lease) -> None:
        raise AssertionError("there is no sandbox")

    with pytest.raises(ApplicationError) as raised:
        await session.use(work, turns=0)
    assert isinstance(raised.value, SandboxRepeatedlyLost) == (restored and bool(exhausted))
    assert raised.value.type == SandboxLost.__name__
