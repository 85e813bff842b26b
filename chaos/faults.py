"""Real faults. Each one strikes a rollout that is held at a phase, and lets it go on."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial

from activities.pauses import ORPHANS_SECONDS, RESTING
from activities.ttl_cache import FRESH_SECONDS
from chaos import sandboxes
from chaos.disk import SmallDisk
from chaos.namespaces import MOST_LOSSES, move_to_another_namespace
from chaos.phases import BEFORE_A_TURN, EVERY_PHASE, IN_A_TURN, LOCAL_STEPS, PHASES, Hit, fail_folder, paused
from chaos.servers import ScriptedTasks
from chaos.stage import HEARTBEAT, ROLES, RUN, SANDBOXES, STORE, Size, Stage
from chaos.waiting import until
from clotho.identifiers.ids import campaign_id, group_of
from clotho.processes.liveness import LIVENESS_SECONDS
from clotho.runs.targets import Target
from tests.cluster import FAST, register
from tests.support import reset

OUTAGE = 12.0
"""Seconds: longer than workers hold on to a completion that the server doesn't take."""
STALL = FAST.workflow_task_timeout.total_seconds() + 4.0
STORE_OUTAGE = 6.0
SLOW_STORE = 8.0
MODEL_OUTAGE = 2.0
STOPPED = HEARTBEAT + 7.0
TAKEN_FOR_GONE = LIVENESS_SECONDS + 5.0
SLOW_WRITE_RULE = "journal.write:delay=2"
STARVED = 6.0
HOST_OUTAGE = 4.0
FEWEST = 3
"""Descriptors: fewer than any process has open."""
PARTITION = 60.0
WORKER_LIMIT = HEARTBEAT + 5.0
TEMPORAL_LIMIT = HEARTBEAT + 10.0
ORPHAN_LIMIT = 2 * ORPHANS_SECONDS + WORKER_LIMIT
"""A rest whose process died is completed when two looks have found it, of which the first may come too early."""
REST_ENDS = "rest.ending"

Strike = Callable[[Stage, Hit, str], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """`strike` returns when what failed is back, or is gone for good."""

    title: str
    strike: Strike
    recovery: float | None = None
    """Seconds within which the rollout must go on; None: no target."""
    by_operator: bool = False
    """Somebody ended work on purpose: starting the run again by name is part of the recovery."""
    small_disk: str | None = None
    """The folder of the stage that has a disk of its own: `store` or `sandboxes`."""
    counts_from_strike: bool = False
    """Recovery counts from the strike: what was killed is started again at once."""
    rules: str = ""
    most_losses: int | None = None
    """Sandboxes that a rollout may lose to it; None: no target."""
    through_ssh: bool = False
    """The stage's sandboxes are made through ssh."""
    for_good: bool = False
    """The stage is another one afterwards: nothing can strike it a second time."""
    phases: Collection[str] = tuple(PHASES)
    """The phases that it strikes at."""
    short_histories: bool = False
    """The stage is on a server of its own, where rollouts continue as new within two turns."""
    equal_workers: bool = False
    """The stage has two workers with all roles, in which turns are steps of their workflow's process."""
    most_repaid: int = 0
    """Answers that may be paid for twice."""
    script: ScriptedTasks | None = None
    """The tasks with a tool that are struck; None: those of the embedded model."""

    @property
    def repeatable(self) -> bool:
        """Whether it may strike any stage, at any moment, and again."""
        return not (self.for_good or self.through_ssh or self.equal_workers) and self.phases == tuple(PHASES)


async def kill_worker(stage: Stage, hit: Hit, rollout: str) -> None:
    await stage.kill_worker(hit.roles)
    hit.release()
    await stage.restart_worker(hit.roles)


async def kill_workers(stage: Stage, hit: Hit, rollout: str) -> None:
    await asyncio.gather(*(stage.kill_worker(roles) for roles in ROLES))
    hit.release()
    await asyncio.gather(*(stage.restart_worker(roles) for roles in ROLES))


async def kill_in_local_step(stage: Stage, hit: Hit, rollout: str) -> None:
    await stage.kill_worker(hit.roles)
    described = await stage.cluster.client.get_workflow_handle(rollout).describe()
    stage.struck_regular = bool(described.raw_description.pending_activities)
    hit.release()
    await stage.restart_worker(hit.roles)


async def kill_before_it_rests(stage: Stage, hit: Hit, rollout: str) -> None:
    """The pause is in the store, and the rollout before its next turn."""
    await stage.operations.pause(Target.named(RUN))
    await kill_workers(stage, hit, rollout)
    await until(partial(_rests, stage, rollout), "its rest")
    await stage.operations.resume(Target.named(RUN))


async def kill_while_it_rests(stage: Stage, hit: Hit, rollout: str) -> None:
    await _rest(stage, hit, rollout)
    await kill_workers(stage, hit, rollout)
    await stage.operations.resume(Target.named(RUN))


async def kill_before_it_is_told(stage: Stage, hit: Hit, rollout: str) -> None:
    """The end of the pause is in the store, and seen by the worker that is to complete the rest."""
    await _rest(stage, hit, rollout)
    await stage.operations.resume(Target.named(RUN))
    await kill_workers(stage, await paused(stage, REST_ENDS), rollout)


async def _rest(stage: Stage, hit: Hit, rollout: str) -> None:
    """Pause the run, and wait until the rollout, which stands before a turn, rests."""
    await stage.operations.pause(Target.named(RUN))
    await asyncio.sleep(FRESH_SECONDS)  # a turn may go by a look that is as old, and be its last one
    hit.release()
    await until(partial(_rests, stage, rollout), "its rest")


async def _rests(stage: Stage, rollout: str) -> bool:
    resting = f"{RESTING} AND WorkflowId = '{rollout}'"
    return (await stage.cluster.client.count_workflows(resting)).count > 0


async def kill_workers_and_temporal(stage: Stage, hit: Hit, rollout: str) -> None:
    await asyncio.gather(stage.servers.temporal.kill(), *(stage.kill_worker(roles) for roles in ROLES))
    hit.release()
    await stage.servers.temporal.start()
    await asyncio.gather(*(stage.restart_worker(roles) for roles in ROLES))


async def kill_temporal(stage: Stage, hit: Hit, rollout: str) -> None:
    await stage.servers.temporal.kill()
    hit.release()
    await asyncio.sleep(OUTAGE)
    await stage.servers.temporal.start()


async def stall_temporal(stage: Stage, hit: Hit, rollout: str) -> None:
    """Workers go on with steps of their own, and have lost the tasks of their workflows by the end."""
    temporal = stage.servers.temporal
    assert temporal.pid is not None
    os.kill(temporal.pid, signal.SIGSTOP)
    hit.release()
    try:
        await asyncio.sleep(STALL)
    finally:
        os.kill(temporal.pid, signal.SIGCONT)


async def delete_database(stage: Stage, hit: Hit, rollout: str) -> None:
    """The namespace is made again, as an operator would."""
    client = stage.cluster.client
    await stage.servers.forget_everything()
    await register(client)
    await until(stage.is_usable, "a new namespace")
    hit.release()


async def kill_model(stage: Stage, hit: Hit, rollout: str) -> None:
    await stage.servers.model.kill()
    hit.release()
    await asyncio.sleep(MODEL_OUTAGE)
    await stage.servers.model.start()


async def destroy_sandbox(stage: Stage, hit: Hit, rollout: str) -> None:
    await sandboxes.destroy(stage, rollout)
    hit.release()


async def kill_supervisor(stage: Stage, hit: Hit, rollout: str) -> None:
    await sandboxes.kill_supervisors(stage, rollout)
    hit.release()


async def kill_far_host(stage: Stage, hit: Hit, rollout: str) -> None:
    await stage.far.kill(stage.sandbox_folder, stage.possible_leases())
    hit.release()
    await asyncio.sleep(HOST_OUTAGE)
    await stage.far.start()


async def slow_store(stage: Stage, hit: Hit, rollout: str) -> None:
    switch = fail_folder(stage) / "journal.write"
    switch.touch()
    hit.release()
    await asyncio.sleep(SLOW_STORE)
    switch.unlink()


async def refuse_writes(stage: Stage, hit: Hit, rollout: str) -> None:
    disk = stage.disks[STORE]
    await disk.refuse_writes()
    hit.release()
    await asyncio.sleep(STORE_OUTAGE)
    await disk.take_writes()


async def fill_disk(stage: Stage, hit: Hit, rollout: str) -> None:
    await _fill(stage.disks[STORE], hit)


async def fill_sandboxes(stage: Stage, hit: Hit, rollout: str) -> None:
    """Nothing that a command writes in its own file system has a place any more."""
    await _fill(stage.disks[SANDBOXES], hit)


async def _fill(disk: SmallDisk, hit: Hit) -> None:
    await disk.fill()
    hit.release()
    await asyncio.sleep(STORE_OUTAGE)
    await disk.empty()


async def starve_workers(stage: Stage, hit: Hit, rollout: str) -> None:
    """Keep workers from opening files, starting processes and connecting; open files stay open."""
    usual = {roles: stage.limit_files(roles, FEWEST) for roles in ROLES}
    hit.release()
    await asyncio.sleep(STARVED)
    for roles, files in usual.items():
        stage.limit_files(roles, files)


def partition(seconds: float) -> Fault:
    async def strike(stage: Stage, hit: Hit, rollout: str) -> None:
        stage.link.cut()
        hit.release()
        await asyncio.sleep(seconds)
        stage.link.heal()

    return Fault(f"workers cut off from Temporal for {seconds:g} s", strike, TEMPORAL_LIMIT)


def stop_worker(seconds: float) -> Strike:
    async def strike(stage: Stage, hit: Hit, rollout: str) -> None:
        stage.signal_worker(hit.roles, signal.SIGSTOP)
        hit.release()
        await asyncio.sleep(seconds)
        stage.signal_worker(hit.roles, signal.SIGCONT)

    return strike


async def terminate_rollout(stage: Stage, hit: Hit, rollout: str) -> None:
    await terminate(stage, rollout)
    hit.release()


async def terminate_group(stage: Stage, hit: Hit, rollout: str) -> None:
    await terminate(stage, group_of(rollout))
    hit.release()


async def reset_rollout(stage: Stage, hit: Hit, rollout: str) -> None:
    await reset(stage.cluster.client, rollout)
    hit.release()


async def reset_group(stage: Stage, hit: Hit, rollout: str) -> None:
    await reset(stage.cluster.client, group_of(rollout))
    hit.release()


async def terminate_and_start(stage: Stage, hit: Hit, rollout: str) -> None:
    await terminate(stage, campaign_id(RUN))
    await stage.start_campaign()
    hit.release()


async def terminate(stage: Stage, workflow: str) -> None:
    await stage.cluster.client.get_workflow_handle(workflow).terminate("a fault on purpose")


FAULTS = {
    "worker": Fault("SIGKILL of a worker", kill_worker, WORKER_LIMIT, counts_from_strike=True),
    "workers": Fault("SIGKILL of all workers", kill_workers, WORKER_LIMIT, counts_from_strike=True),
    "local-step": Fault(
        "SIGKILL of a worker within a step of its own process, which Temporal knows nothing of",
        kill_in_local_step,
        WORKER_LIMIT,
        counts_from_strike=True,
        phases=LOCAL_STEPS,
    ),
    "local-turn": Fault(
        "SIGKILL of one of two equal workers within a turn in its own process",
        kill_in_local_step,
        WORKER_LIMIT,
        counts_from_strike=True,
        phases=IN_A_TURN,
        equal_workers=True,
    ),
    "frozen-turn": Fault(
        f"SIGSTOP of one of two equal workers for {TAKEN_FOR_GONE:g} s, within a turn in its own process",
        stop_worker(TAKEN_FOR_GONE),
        WORKER_LIMIT,
        phases=IN_A_TURN,
        equal_workers=True,
        most_repaid=Size().groups * Size().group_size,
    ),
    "before-rest": Fault(
        "paused, SIGKILL of all workers before it rests, resumed",
        kill_before_it_rests,
        WORKER_LIMIT,
        phases=BEFORE_A_TURN,
    ),
    "in-rest": Fault(
        "paused, SIGKILL of all workers while it rests, resumed",
        kill_while_it_rests,
        ORPHAN_LIMIT,
        phases=BEFORE_A_TURN,
    ),
    "rest-ends": Fault(
        "paused, resumed, SIGKILL of all workers before they complete its rest",
        kill_before_it_is_told,
        ORPHAN_LIMIT,
        rules=f"{REST_ENDS}[*/g*]:pause",
        phases=BEFORE_A_TURN,
    ),
    "continued": Fault(
        "SIGKILL of all workers and of Temporal, while rollouts continue as new within two turns",
        kill_workers_and_temporal,
        TEMPORAL_LIMIT,
        phases=tuple(EVERY_PHASE),
        short_histories=True,
    ),
    "temporal": Fault(
        f"SIGKILL of Temporal, back after {OUTAGE:g} s with its database", kill_temporal, TEMPORAL_LIMIT
    ),
    "stalled": Fault(
        f"SIGSTOP of Temporal for {STALL:g} s, with turns in the processes of two equal workers",
        stall_temporal,
        TEMPORAL_LIMIT,
        equal_workers=True,
    ),
    "model": Fault("SIGKILL of the model server", kill_model),
    "sandbox": Fault("a sandbox destroyed, files and all", destroy_sandbox),
    "supervisor": Fault("SIGKILL of a sandbox's supervisor", kill_supervisor),
    "ssh-host": Fault(
        f"SIGKILL of a sandbox host reached through ssh, and of its sandboxes, back after {HOST_OUTAGE:g} s",
        kill_far_host,
        through_ssh=True,
    ),
    "store-slow": Fault("store: every write takes 2 s more", slow_store, rules=SLOW_WRITE_RULE),
    "store-refuses": Fault(f"store refuses writes for {STORE_OUTAGE:g} s", refuse_writes, small_disk=STORE),
    "disk-full": Fault(f"the store's disk is full for {STORE_OUTAGE:g} s", fill_disk, small_disk=STORE),
    "sandboxes-full": Fault(
        f"the disk under the sandboxes is full for {STORE_OUTAGE:g} s",
        fill_sandboxes,
        small_disk=SANDBOXES,
    ),
    "descriptors": Fault(f"a host without descriptors for {STARVED:g} s", starve_workers),
    "partition": partition(PARTITION),
    "stopped": Fault(f"SIGSTOP of a worker for {STOPPED:g} s", stop_worker(STOPPED), WORKER_LIMIT),
    "terminate-rollout": Fault("rollout terminated", terminate_rollout, by_operator=True),
    "reset-rollout": Fault("rollout reset", reset_rollout, by_operator=True),
    "terminate-group": Fault("group terminated", terminate_group, by_operator=True),
    "reset-group": Fault("group reset", reset_group, by_operator=True),
    "terminate-start": Fault(
        "campaign terminated, started at once by name", terminate_and_start, by_operator=True
    ),
    "database": Fault("Temporal's database deleted", delete_database, by_operator=True),
    "namespaces": Fault(
        "the run closed in its namespace, gone on in another on the same store and host",
        move_to_another_namespace,
        by_operator=True,
        most_losses=MOST_LOSSES,
        for_good=True,
    ),
}
"""Every fault of this table by its name, which `--fault` takes."""
