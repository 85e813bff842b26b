"""One cell: a fault strikes one rollout of a small run at one phase; the rest is waiting and counting."""

import asyncio
import time
from pathlib import Path

from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError

from chaos import sandboxes
from chaos.faults import Fault
from chaos.phases import Hit, Phase, fail_folder
from chaos.results import CellResult, Run, compare
from chaos.servers import Servers
from chaos.stage import APART, EQUAL, RUN, Size, Stage, stage_on
from chaos.waiting import NotReached, until
from clotho.errors import ClothoError, InvalidInput, StoreUnavailable
from clotho.escaping import truncate_middle
from clotho.identifiers.keys import end_key, reward_key, sealed_key
from clotho.journal import Journal
from clotho.plugins.demo.execution_markers import marks_in
from clotho.plugins.demo.provider import duplicate_calls
from clotho.rollouts.rollout import EndEntry
from clotho.rollouts.transcript import read_transcript
from clotho.rollouts.verification import RewardEntry
from clotho.runs.campaigns import CampaignHandle
from clotho.runs.children import all_descendants, last_words
from clotho.runs.groups import scored_groups

COMPLETION_SECONDS = 150.0
MOST_RESTARTS = 4
REAPER_SECONDS = 15.0
RETRY_SECONDS = 0.5


class Stuck(Exception):
    """The run didn't complete."""


async def undisturbed(servers: Servers, name: str, size: Size, images: Path | None = None) -> Run:
    async with stage_on(servers, name, size, small_disks=(), slow={}, images=images) as stage:
        await stage.start_workers()
        await completion(stage, await stage.start_campaign(), most_restarts=0)
        return (await outcome(stage)).model_copy(update={"turns": None})


def target(run: Run) -> str:
    """The first rollout with the most commands: faults strike it at its second turn and its second command."""
    return max(run.marks, key=lambda place: sum(run.marks[place].values()))


async def play(
    servers: Servers,
    name: tuple[str, str],
    fault: Fault,
    phase: Phase,
    size: Size,
    expected: Run,
    images: Path | None = None,
) -> CellResult:
    """With `images`, its sandboxes are in containers."""
    result = CellResult(
        fault=name[0],
        phase=name[1],
        recovery_limit=fault.recovery,
        losses_limit=fault.most_losses,
        repaid_limit=fault.most_repaid,
    )
    rollout, clock = target(expected), time.monotonic()
    stage_name = f"{'-'.join(name)}-{time.time_ns():x}"
    try:
        async with stage_on(
            servers,
            stage_name,
            size,
            small_disks=(fault.small_disk,) if fault.small_disk else (),
            slow=phase.slow(rollout),
            images=images,
            through_ssh=fault.through_ssh,
            script=fault.script,
            workers=EQUAL if fault.equal_workers else APART,
        ) as stage:
            result = await measured(stage, fault, phase, rollout, expected, result)
    except (NotReached, Stuck, ClothoError, RPCError) as problem:
        result = result.model_copy(update={"problem": str(problem)})
    return result.model_copy(update={"seconds": round(time.monotonic() - clock, 1)})


async def measured(
    stage: Stage, fault: Fault, phase: Phase, rollout: str, expected: Run, result: CellResult
) -> CellResult:
    fail_folder(stage).mkdir()
    stage.provider.hold, stage.provider.halves = phase.held(rollout), phase.halves_answer
    rules = ",".join(filter(None, (phase.rules(rollout), fault.rules)))
    await stage.start_workers(CLOTHO_FAIL=rules, CLOTHO_FAIL_FOLDER=str(fail_folder(stage)))
    handle = await stage.start_campaign()
    hit = await reached(stage, phase, rollout, handle)
    known, since = await stage.entries_of(rollout), time.monotonic()
    await fault.strike(stage, hit, rollout)
    if not fault.counts_from_strike:
        known, since = await stage.entries_of(rollout), time.monotonic()
    recovering = asyncio.create_task(recovery(stage, rollout, known, since))
    try:
        restarts = await completion(stage, handle, MOST_RESTARTS if fault.by_operator else 0)
        seconds = await recovering
        if fault.short_histories and not await stage.has_continued(rollout):
            raise NotReached(f"{rollout} didn't continue as new")
    finally:
        recovering.cancel()
    found = {"recovery": round(seconds, 1), "restarts": restarts}
    return await counted(stage, expected, result.model_copy(update=found), fault.by_operator)


async def counted(stage: Stage, expected: Run, result: CellResult, ended_on_purpose: bool) -> CellResult:
    """Compare a completed run with what it should have come to, and count what it left behind."""
    to_reaper, orphans = await orphaned(stage)
    counts = {
        "bill": duplicate_calls(stage.provider.calls, stage.deaths, ended_on_purpose=ended_on_purpose),
        "unexpected_exits": stage.unexpected_exits,
        "struck_regular": stage.struck_regular,
        "to_reaper": to_reaper,
        "orphans": tuple(orphans),
    }
    return compare(result.model_copy(update=counts), await outcome(stage), expected)


async def reached(stage: Stage, phase: Phase, rollout: str, handle: CampaignHandle) -> Hit:
    """Raises NotReached where the run ends without coming to the phase."""
    waiting = asyncio.create_task(phase.wait(stage, phase, rollout))
    running = asyncio.create_task(handle.result())
    try:
        await asyncio.wait([waiting, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            raise NotReached("the run ended without coming to this phase")
        return await waiting
    finally:
        waiting.cancel()
        running.cancel()
        await asyncio.gather(waiting, running, return_exceptions=True)


async def recovery(stage: Stage, rollout: str, known: frozenset[str], since: float) -> float:
    """Seconds until the journal has more of the rollout, or of a child, than was `known`; none if it had ended."""
    if sealed_key(rollout) in known:
        return 0.0

    async def goes_on() -> bool:
        return bool(await stage.entries_of(rollout) - known)

    await until(goes_on, "its next entry", COMPLETION_SECONDS)
    return time.monotonic() - since


async def completion(
    stage: Stage, handle: CampaignHandle, most_restarts: int, seconds: float = COMPLETION_SECONDS
) -> int:
    """Wait for the run, and start it again where an operator would; returns how often."""
    restarts = 0
    deadline = time.monotonic() + seconds
    while True:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await handle.result()
            return restarts
        except TimeoutError:
            raise Stuck(f"not complete after {seconds:g} s; {stage.last_words}") from None
        except (WorkflowFailureError, RPCError) as error:
            if restarts == most_restarts:
                first = str(error.__cause__ or error).rpartition("First: ")[2]
                raise Stuck(f"failed: {truncate_middle(first, 160)}") from error
        restarts += 1
        handle = await started_again(stage, deadline)


async def started_again(stage: Stage, deadline: float) -> CampaignHandle:
    """An operator is refused while the store or the namespace is out, and tries until neither is."""
    while True:
        try:
            return await stage.start_campaign()
        except (InvalidInput, StoreUnavailable) as refused:
            if time.monotonic() > deadline:
                raise Stuck(f"not started again: {truncate_middle(str(refused), 160)}") from refused
        await asyncio.sleep(RETRY_SECONDS)


async def outcome(stage: Stage) -> Run:
    return await outcome_in(stage.cluster.open_journal())


async def outcome_in(journal: Journal) -> Run:
    rewards: dict[str, float] = {}
    marks: dict[str, dict[str, int]] = {}
    most_losses = turns = 0
    for group, entry in await scored_groups(journal, RUN):
        for number, sibling in enumerate(entry.siblings):
            place = f"{group}/r{number}"
            if sibling.rollout != place:
                continue  # one that was started in its stead, and may have come to the same: this one is lost
            reward = await journal.read_required(reward_key(sibling.rollout), RewardEntry)
            rewards[place], marks[place] = reward.score, dict(marks_in(reward.log))
            end = await journal.read_required(end_key(sibling.rollout), EndEntry)
            most_losses = max(most_losses, len(end.summary.losses))
            turns += end.summary.turns
            transcript = await read_transcript(journal, sibling.rollout, end.summary.turns)
            for child, did in await all_descendants(journal, transcript):
                if child.parent == sibling.rollout:
                    marks[child.rollout] = dict(marks_in(last_words(did.messages)))
    return Run(rewards=rewards, marks=marks, most_losses=most_losses, turns=turns)


async def orphaned(stage: sandboxes.Host) -> tuple[int, list[str]]:
    """How many sandboxes were left for the reaper, and what is left after it has looked."""
    before = len(await sandboxes.held(stage))
    deadline = time.monotonic() + REAPER_SECONDS
    while time.monotonic() < deadline:
        await sandboxes.reaper_pass(stage)
        if not await sandboxes.left_over(stage):
            return before, []
        await asyncio.sleep(1)
    return before, await sandboxes.left_over(stage)
