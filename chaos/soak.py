"""Random faults at random moments of a larger run, again and again; counted as in the matrix."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence

from temporalio.service import RPCError, RPCStatusCode

from chaos.cell import Stuck, completion, counted, undisturbed
from chaos.faults import FAULTS, Fault, partition
from chaos.phases import Hit, fail_folder
from chaos.results import CellResult, Run
from chaos.scratch import scratch
from chaos.servers import Servers, servers_in
from chaos.stage import DISK_MEGABYTES, ROLES, RUN, Size, Stage, stage_on
from chaos.table import shown

SIZE = Size(groups=16, group_size=4)
PARTITION = 15.0
PAUSES = (0.5, 4.0)
"""Seconds between the end of a fault and the next."""
LONGEST_ROUND = 900.0
ENDED = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)


async def soak(minutes: float, names: Sequence[str], seed: int, say: Callable[[str], None]) -> bool:
    """Whether every round kept every promise. The same seed draws the same faults, at other moments."""
    shorter = FAULTS | {"partition": partition(PARTITION)}
    kinds = {name: fault for name, fault in shorter.items() if name in names}
    end, chance = time.monotonic() + 60 * minutes, random.Random(seed)
    good, number = True, 0
    async with scratch() as folder, servers_in(folder / "soak") as servers:
        expected = await undisturbed(servers, "undisturbed", SIZE)
        say(f"undisturbed: {len(expected.rewards)} rollouts, {expected.calls} commands; seed {seed}")
        while time.monotonic() < end:
            result, struck = await one_round(servers, f"round-{number}", kinds, chance, expected)
            good, number = good and not result.missed, number + 1
            say(f"round {number}: {shown([result])} [{', '.join(struck)}]")
    return good


async def one_round(
    servers: Servers, name: str, kinds: Mapping[str, Fault], chance: random.Random, expected: Run
) -> tuple[CellResult, list[str]]:
    clock, struck = time.monotonic(), list[str]()
    result = CellResult(fault="random", phase="random", recovery=0.0)
    async with stage_on(servers, name, SIZE, small_disks=DISK_MEGABYTES, slow={}) as stage:
        fail_folder(stage).mkdir()
        rules = ",".join(filter(None, (fault.rules for fault in kinds.values())))
        await stage.start_workers(CLOTHO_FAIL=rules, CLOTHO_FAIL_FOLDER=str(fail_folder(stage)))
        completing = asyncio.create_task(
            completion(stage, await stage.start_campaign(), most_restarts=1_000, seconds=LONGEST_ROUND)
        )
        try:
            while not completing.done():
                await strike(stage, kinds, chance, struck)
                await asyncio.wait([completing], timeout=chance.uniform(*PAUSES))
            result = result.model_copy(update={"restarts": await completing})
            result = await counted(
                stage, expected, result, ended_on_purpose=any(kinds[name].by_operator for name in struck)
            )
        except Stuck as problem:
            result = result.model_copy(update={"problem": str(problem)})
        finally:
            completing.cancel()
    return result.model_copy(update={"seconds": round(time.monotonic() - clock, 1)}), struck


async def strike(stage: Stage, kinds: Mapping[str, Fault], chance: random.Random, struck: list[str]) -> None:
    """One fault of any of the kinds, on any rollout that is under way and any worker."""
    name, roles = chance.choice(sorted(kinds)), chance.choice(ROLES)
    if (rollout := chance.choice(await under_way(stage) or [None])) is None:
        return
    struck.append(name)
    try:
        await kinds[name].strike(stage, Hit(roles), rollout)
    except RPCError as error:
        if error.status not in ENDED:  # what was to be terminated or reset has ended meanwhile
            raise


async def under_way(stage: Stage) -> list[str]:
    keys = await stage.entries(f"{RUN}/")
    rollouts = {key.removesuffix("/prompt") for key in keys if key.endswith("/prompt")}
    return sorted(rollout for rollout in rollouts if f"{rollout}/end" not in keys)
