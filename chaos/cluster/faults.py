"""Real faults of hosts, of the network between them and of the servers that they share."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from chaos.cluster.stage import ClusterStage
from clotho.processes.liveness import LIVENESS_SECONDS
from workflows.steps import QUEUE_TIMEOUT

STRUCK = 3
"""The host that is struck."""
CUT = 60.0
LATE = 0.1
SKEW = 600.0
DISK_OUTAGE = 6.0
DATABASE_OUTAGE = 10.0
BACKUP_AGE = 60.0
STORE_OUTAGE = 60.0
REFUSED_SHARE = 0.1
MOVES = QUEUE_TIMEOUT.total_seconds() + LIVENESS_SECONDS
"""Seconds until work that waits for a dead host goes on elsewhere."""
SLACK = 25.0
"""Seconds for restores and starts, on two processors that three hosts and all servers share."""

Strike = Callable[[ClusterStage], Awaitable[None]]


@dataclass(frozen=True)
class ClusterFault:
    """`strike` returns when what failed is back, or is gone for good."""

    title: str
    strike: Strike
    recovery: float
    """Seconds within which every open rollout must have gone on."""
    counts_from_end: bool = False
    """Recovery counts from the end of the strike: nothing can go on before."""
    latency: float = 3.0
    """Seconds that a model's answer takes longer."""
    clocks: Mapping[int, float] = field(default_factory=dict)
    small_disk: bool = False
    loses_host: bool = False
    """Whether sandboxes of the struck host are lost with it."""
    partition: bool = False
    """Whether a process that lives is taken for gone, so that what it was asking for is paid again."""
    asked_before: float = 1.5
    """Calls of each rollout, on average, before it strikes."""


async def kill_host(stage: ClusterStage) -> None:
    await stage.kill_host(STRUCK)


async def cut_host(stage: ClusterStage) -> None:
    await stage.servers.network.cut(STRUCK)
    await asyncio.sleep(CUT)
    await stage.servers.network.heal(STRUCK)


async def slow_host(stage: ClusterStage) -> None:
    for gate in stage.gates:
        gate.delays[stage.servers.network.address_of(STRUCK)] = LATE


async def nothing(stage: ClusterStage) -> None:
    """The hosts' clocks are the fault."""


async def fill_disk(stage: ClusterStage) -> None:
    disk = stage.hosts[STRUCK].disk
    assert disk is not None
    await disk.fill()
    await asyncio.sleep(DISK_OUTAGE)
    await disk.empty()


async def restart_postgres(stage: ClusterStage) -> None:
    await stage.servers.postgres.crash()
    await asyncio.sleep(DATABASE_OUTAGE)
    await stage.servers.postgres.start()


async def promote_backup(stage: ClusterStage) -> None:
    """Servers that hold newer state in memory are started anew, as an operator would."""
    servers = stage.servers
    await servers.postgres.back_up()
    await asyncio.sleep(BACKUP_AGE)
    await asyncio.gather(*(temporal.kill() for temporal in servers.temporals))
    await servers.postgres.promote_backup()
    await asyncio.gather(*(temporal.start() for temporal in servers.temporals))


async def kill_one_temporal(stage: ClusterStage) -> None:
    await stage.servers.temporals[0].kill()


async def kill_both_temporals(stage: ClusterStage) -> None:
    temporals = stage.servers.temporals
    await asyncio.gather(*(temporal.kill() for temporal in temporals))
    await asyncio.sleep(DATABASE_OUTAGE)
    await asyncio.gather(*(temporal.start() for temporal in temporals))


async def kill_store(stage: ClusterStage) -> None:
    await stage.servers.s3_process.kill()
    await asyncio.sleep(STORE_OUTAGE)
    await stage.servers.restart_s3()


async def refuse_requests(stage: ClusterStage) -> None:
    stage.servers.s3_gate.refused_share = REFUSED_SHARE


async def start_namesake(stage: ClusterStage) -> None:
    """The struck host's power is cut, and it is started again under the name of another that lives."""
    await stage.kill_host(STRUCK)
    namesake = stage.hosts[STRUCK] = stage.hosts[STRUCK].named(stage.hosts[1].name)
    await namesake.start()
    deadline = time.monotonic() + MOVES + SLACK
    while namesake.worker.running:
        if time.monotonic() > deadline:
            raise RuntimeError("the second host of one name wasn't refused")
        await asyncio.sleep(0.5)


MINUTES = f"{SKEW / 60:g} min"
FAULTS = {
    "host-killed": ClusterFault(
        "a host killed whole, sandboxes and all, and not brought back",
        kill_host,
        MOVES + SLACK,
        loses_host=True,
    ),
    "host-cut": ClusterFault(
        f"a host cut off from everything for {CUT:g} s",
        cut_host,
        MOVES + SLACK,
        latency=8.0,
        loses_host=True,
        partition=True,
    ),
    "host-slow": ClusterFault(
        f"each round trip of a host takes {2 * LATE * 1000:g} ms more", slow_host, SLACK
    ),
    "clock-ahead": ClusterFault(
        f"a host whose clock is {MINUTES} ahead, killed whole",
        kill_host,
        MOVES + SLACK,
        clocks={STRUCK: SKEW},
        loses_host=True,
    ),
    "clock-behind": ClusterFault(
        f"a host whose clock is {MINUTES} behind", nothing, SLACK, clocks={STRUCK: -SKEW}
    ),
    "host-disk-full": ClusterFault(
        f"a host's disk under its sandboxes full for {DISK_OUTAGE:g} s",
        fill_disk,
        SLACK,
        counts_from_end=True,
        small_disk=True,
    ),
    "postgres": ClusterFault(
        f"PostgreSQL crashed, back after {DATABASE_OUTAGE:g} s", restart_postgres, MOVES, counts_from_end=True
    ),
    "backup": ClusterFault(
        f"PostgreSQL replaced by a copy from a backup {BACKUP_AGE:g} s old, and Temporal started anew",
        promote_backup,
        2 * MOVES,
        counts_from_end=True,
        latency=25.0,
        asked_before=1.0,
    ),
    "temporal-one": ClusterFault("one of two Temporal processes killed", kill_one_temporal, SLACK + 10),
    "temporal-both": ClusterFault(
        f"both Temporal processes killed, back after {DATABASE_OUTAGE:g} s",
        kill_both_temporals,
        MOVES,
        counts_from_end=True,
    ),
    "store-killed": ClusterFault(
        f"the S3 server killed, back after {STORE_OUTAGE:g} s", kill_store, MOVES, counts_from_end=True
    ),
    "store-503": ClusterFault("the S3 server answers 503 to a tenth of all requests", refuse_requests, SLACK),
    "namesake": ClusterFault(
        "a host killed whole, and started again under the name of another that lives",
        start_namesake,
        MOVES + SLACK,
        loses_host=True,
    ),
}
"""Every fault of the cluster by its name, which `--fault` takes."""
