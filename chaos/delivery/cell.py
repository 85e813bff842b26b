"""One cell of delivery: parts of the chain are killed at one phase; the rest is waiting and counting."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from temporalio.service import RPCError

from chaos.cell import Stuck, orphaned
from chaos.delivery.faults import FAULTS, PHASES, DeliveryFault, DeliveryPhase
from chaos.delivery.results import Delivered, DeliveryResult, compare
from chaos.delivery.size import GROUPS, GROUPS_PER_BATCH
from chaos.delivery.stage import API, DeliveryStage, delivery_stage_on
from chaos.delivery.trainer import TIMEOUT
from chaos.plays import Name
from chaos.scratch import scratch
from chaos.servers import Servers, servers_in
from chaos.stage import RUN
from chaos.waiting import NotReached, until
from clotho.errors import ClothoError
from clotho.listeners.tokens import TokenAuth

COMPLETION_SECONDS = 150.0


POLL_SECONDS = 0.2


ANSWERS_WITHOUT_BATCH = 2
"""After all was delivered: the first may be to a question that was asked before."""


async def play_all(names: Sequence[Name], keep: Callable[[DeliveryResult], None], lanes: int) -> None:
    """Hands each result to `keep`, compared with an undisturbed run."""
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
    async with delivery_stage_on(servers, f"{'-'.join(name)}-{time.time_ns():x}", phase.rules) as stage:
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
    died_with = struck if phase.trainer == "has" and fault.trainer_alone_dies else frozenset[str]()
    known, since = await had(stage), time.monotonic()
    await stage.kill(fault.parts, between_batches=phase.trainer == "idle")
    for file in files:
        file.unlink()
    await stage.start_again(fault.parts)

    def went_on(now: frozenset[str]) -> bool:
        return len(known | died_with) == GROUPS or (struck - died_with <= now and now != known)

    recovering = asyncio.create_task(recovery(stage, went_on, since))
    try:
        run = await completion(stage, GROUPS - len(died_with))
        seconds = await recovering if went_on(await had(stage)) else None
    finally:
        recovering.cancel()
    to_reaper, orphans = await orphaned(stage)
    found = {
        "recovery": 0.0 if len(known | died_with) == GROUPS else seconds,
        "died_with": tuple(sorted(died_with)),
        "to_reaper": to_reaper,
        "orphans": tuple(orphans),
    }
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


async def recovery(stage: DeliveryStage, went_on: Callable[[frozenset[str]], bool], since: float) -> float:
    """Seconds until the trainer has the groups that were struck; where it had them, its next group."""

    async def goes_on() -> bool:
        return went_on(await had(stage))

    await until(goes_on, "its next group", COMPLETION_SECONDS, POLL_SECONDS)
    return round(time.monotonic() - since, 1)


async def completion(stage: DeliveryStage, groups: int = GROUPS) -> Delivered:
    """The trainer's groups, once it has so many, or the API has none left for it.

    Raises Stuck if a part ends by itself, NotReached.
    """

    async def delivered() -> bool:
        """Every group of the dataset is acknowledged, or dropped for good."""
        check(stage)
        deliveries = await stage.deliveries()
        return len(deliveries) == GROUPS and None not in deliveries.values()

    await until(delivered, "the end of every delivery", COMPLETION_SECONDS, POLL_SECONDS)
    asked = await stage.answers_without_batch()

    async def arrived() -> bool:
        check(stage)
        answered = await stage.answers_without_batch()
        return len(await had(stage)) == groups or answered >= asked + ANSWERS_WITHOUT_BATCH

    await until(arrived, "the trainer", COMPLETION_SECONDS, POLL_SECONDS)
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
    async with httpx.AsyncClient(base_url=stage.api_url, timeout=TIMEOUT, auth=TokenAuth()) as http:
        status = (await http.get("/status")).raise_for_status().json()
    return int(status["current_step"]) * GROUPS_PER_BATCH + int(status["queue_size"])
