"""One cell of delivery: parts of the chain are killed at one phase; the rest is waiting and counting."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
from temporalio.service import RPCError

from chaos.cell import Stuck, orphaned
from chaos.delivery.faults import FAULTS, PHASES, DeliveryFault, DeliveryPhase
from chaos.delivery.results import Delivered, DeliveryResult, compare
from chaos.delivery.size import GROUPS, GROUPS_PER_BATCH
from chaos.delivery.stage import API, DeliveryStage, delivery_stage_on
from chaos.scratch import scratch
from chaos.stage import RUN, Servers, servers_in
from chaos.table import Name
from chaos.waiting import NotReached, until
from clotho.errors import ClothoError

COMPLETION_SECONDS = 150.0


POLL_SECONDS = 0.2


GIVEN_UP_SECONDS = 10.0
"""Of a trainer that asks all the time: what it hasn't got by then, though all was delivered, is lost."""


async def play_all(names: Sequence[Name], keep: Callable[[DeliveryResult], None], lanes: int) -> None:
    """Hands each result to `keep`, compared with an undisturbed run."""
    if not names:
        return
    room = asyncio.Semaphore(lanes)
    async with scratch() as folder, servers_in(folder / "servers") as servers:

        async def undisturbed() -> Delivered:
            async with room, delivery_stage_on(servers, "undisturbed", rules="") as stage:
                run = await completion(stage)
            if len(dict(run.groups)) != GROUPS:
                raise Stuck(f"undisturbed, {len(dict(run.groups))} of {GROUPS} groups arrived")
            return run

        async def cell(name: Name) -> None:
            async with room:
                result, run = await play(servers, name)
            keep(compare(result, run, await expected) if run is not None else result)

        async with asyncio.TaskGroup() as tasks:
            expected = tasks.create_task(undisturbed())
            for name in names:
                tasks.create_task(cell(name))


async def play(servers: Servers, name: Name) -> tuple[DeliveryResult, Delivered | None]:
    fault, phase, clock = FAULTS[name[0]], PHASES[name[1]], time.monotonic()
    result = DeliveryResult(fault=name[0], phase=name[1], api_died=API in fault.parts)
    run = None
    async with delivery_stage_on(servers, "-".join(name), phase.rules) as stage:
        try:
            result, run = await measured(stage, fault, phase, result)
        except (NotReached, Stuck, ClothoError, RPCError) as problem:
            result = result.model_copy(update={"problem": str(problem)})
    return result.model_copy(update={"seconds": round(time.monotonic() - clock, 1)}), run


async def measured(
    stage: DeliveryStage, fault: DeliveryFault, phase: DeliveryPhase, result: DeliveryResult
) -> tuple[DeliveryResult, Delivered]:
    files = [stage.fail_folder / name for name in phase.names]
    for file in files:
        await reached(stage, file)
    struck = frozenset[str]().union(*[await asyncio.to_thread(groups_at, file) for file in files])
    known, since = await had(stage), time.monotonic()
    await stage.kill(fault.parts)
    for file in files:
        file.unlink()
    await stage.start_again(fault.parts)
    recovering = asyncio.create_task(recovery(stage, struck, known, since))
    try:
        run = await completion(stage)
        went_on, _ = await asyncio.wait([recovering], timeout=GIVEN_UP_SECONDS)
        seconds = recovering.result() if went_on else None
    finally:
        recovering.cancel()
    to_reaper, orphans = await orphaned(stage)
    found = {"recovery": seconds, "to_reaper": to_reaper, "orphans": tuple(orphans)}
    return result.model_copy(update=found), run


async def reached(stage: DeliveryStage, point: Path) -> None:
    async def stands_there() -> bool:
        check(stage)
        return await asyncio.to_thread(point.exists)

    await until(stands_there, point.name)


def groups_at(point: Path) -> frozenset[str]:
    """The groups on whose behalf somebody stands at the fail point."""
    subjects = point.read_text().partition(" ")[2].split(",")
    return frozenset(
        "/".join(subject.split("/")[:2]) for subject in subjects if subject.startswith(f"{RUN}/")
    )


async def recovery(
    stage: DeliveryStage, struck: frozenset[str], known: frozenset[str], since: float
) -> float:
    """Seconds until the trainer has the groups that were struck; where it had them, its next group."""
    if len(known) == GROUPS:
        return 0.0

    async def goes_on() -> bool:
        now = await had(stage)
        return struck <= now and now != known

    await until(goes_on, "its next group", COMPLETION_SECONDS, POLL_SECONDS)
    return round(time.monotonic() - since, 1)


async def completion(stage: DeliveryStage) -> Delivered:
    """What the trainer had once all was delivered. Raises Stuck if a part ends by itself, NotReached."""

    async def delivered() -> bool:
        """Every group of the dataset is acknowledged, or dropped for good."""
        check(stage)
        deliveries = await stage.deliveries()
        return len(deliveries) == GROUPS and None not in deliveries.values()

    async def arrived() -> bool:
        return len(await had(stage)) == GROUPS

    await until(delivered, "the end of every delivery", COMPLETION_SECONDS, POLL_SECONDS)
    with suppress(NotReached):
        await until(arrived, "the trainer", GIVEN_UP_SECONDS, POLL_SECONDS)
    check(stage)
    return Delivered(batches=tuple(await stage.received()), queued=await queued(stage))


def check(stage: DeliveryStage) -> None:
    if (words := stage.ended()) is not None:
        raise Stuck(words)


async def had(stage: DeliveryStage) -> frozenset[str]:
    """The groups that the trainer has had."""
    return frozenset(name for batch in await stage.received() for name, _ in batch.groups)


async def queued(stage: DeliveryStage) -> int:
    """How many groups the API's queue ever held: the step counts the batches that were formed of it."""
    async with httpx.AsyncClient(base_url=stage.api_url) as http:
        status = (await http.get("/status")).raise_for_status().json()
    return int(status["current_step"]) * GROUPS_PER_BATCH + int(status["queue_size"])
