"""The turns of rollouts in which no model acts."""

import json
import math

from clotho.environment.handles import EnvironmentHandle
from clotho.errors import InvalidInput
from clotho.identifiers.ids import group_of, sibling_number
from clotho.identifiers.keys import scored_key
from clotho.journal import Journal
from clotho.rollouts.agent import NO_PLAN, AgentKind, planned_call, spoiling_call
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Item
from clotho.rollouts.rollout import Prompt, RolloutSummary, encoded_files
from clotho.rollouts.run import RunManifest
from clotho.rollouts.transcript import read_transcript

TOOL = "terminal"
"""The tool that runs solutions."""


async def with_plan(
    journal: Journal,
    environment: EnvironmentHandle,
    manifest: RunManifest,
    prompt: Prompt,
    rollout: str,
) -> Prompt:
    """`prompt` with the plan or program of the run's agent; unchanged where a model acts.

    Raises InvalidInput for an item without a solution, and for a recorded rollout that isn't there.
    """
    match manifest.agent.kind:
        case AgentKind.MODEL:
            return prompt
        case AgentKind.PROGRAM:
            return prompt.model_copy(update={"program": manifest.agent.program})
        case AgentKind.NOP:
            return prompt.model_copy(update={"plan": NO_PLAN})
        case AgentKind.REPLAY:
            recorded = await _recorded(journal, environment, manifest, prompt.item, rollout)
            return await with_recorded_plan(journal, prompt, recorded)
        case kind:
            solution = await environment.solution(prompt.item)
            seconds = solution.seconds or manifest.tool_settings.longest_command_seconds
            arguments = json.dumps({"command": solution.command, "timeout": math.ceil(seconds)})
            files = {**prompt.workspace_files, **encoded_files(solution.files)}
            solve = planned_call(TOOL, arguments)
            plan = (solve,) if kind is AgentKind.ORACLE else (spoiling_call(kind, solve, TOOL),)
            return prompt.model_copy(update={"plan": plan, "workspace_files": files})


async def _recorded(
    journal: Journal,
    environment: EnvironmentHandle,
    manifest: RunManifest,
    item: Item,
    rollout: str,
) -> RolloutSummary:
    """The rollout with the same numbers in the run that is replayed."""
    group = group_of(rollout)
    recorded = f"{manifest.agent.replays}{group.removeprefix(manifest.run)}"
    entry = await journal.read(scored_key(recorded), GroupEntry)
    if entry is None:
        raise InvalidInput(f"there is no scored group {recorded} to replay")
    # the environment decides: a task whose files were mended since is the same item
    if not await environment.same_item(entry.item, item):
        raise InvalidInput(f"{recorded} rolled another item out: replay it with the same items")
    siblings = {sibling_number(sibling.rollout): sibling for sibling in entry.siblings}
    if (number := sibling_number(rollout)) not in siblings:
        raise InvalidInput(
            f"{recorded} has {len(siblings)} rollouts: replay it with --group-size {len(siblings)}"
        )
    return siblings[number]


async def with_recorded_plan(journal: Journal, prompt: Prompt, recorded: RolloutSummary) -> Prompt:
    """`prompt` with the assistant's messages of a recorded rollout."""
    transcript = await read_transcript(journal, recorded.rollout, recorded.turns)
    sampled = (step.turn.sampled for step in transcript.steps)
    plan = tuple(turn.message for turn in sampled if turn is not None)
    return prompt.model_copy(update={"plan": plan, "recorded": recorded.rollout})
