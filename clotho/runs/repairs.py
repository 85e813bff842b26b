"""Repairs of siblings that failed for infrastructure reasons."""

from clotho.identifiers.ids import derived_seed, original_of, replacement_id, rollout_id
from clotho.identifiers.keys import (
    adapter_items_prefix,
    campaign_request_prefix,
    group_repairs_prefix,
    prompt_key,
    repairs_prefix,
    turn_prefix,
)
from clotho.journal import Journal
from clotho.rollouts.campaign import CampaignRequest
from clotho.rollouts.group import RepairEntry, RepairRequest
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.run import RunManifest
from clotho.rollouts.turn import TurnEntry


async def claim_repair(journal: Journal, manifest: RunManifest, request: RepairRequest) -> str | None:
    """Choose the rollout that continues the failed one, and write its prompt; None if a bound forbids it.

    Concurrent claims may exceed the run's bound together.
    """
    key = f"{group_repairs_prefix(request.group)}{request.attempt:03}-{request.number:03}"
    # looked up first: an activity that is repeated must not count its own repair against the bounds
    if (claimed := await journal.read(key, RepairEntry)) is None:
        if request.number >= request.bounds.per_group:
            return None
        # An adapter's run has no number of groups: it is as large as the items that it has taken so far.
        campaign = await journal.latest(campaign_request_prefix(request.run), CampaignRequest)
        groups = campaign.groups if campaign else len(await journal.keys(adapter_items_prefix(request.run)))
        rollouts = groups * manifest.group_size
        if len(await journal.keys(repairs_prefix(request.run))) >= request.bounds.in_run(rollouts):
            return None
        claimed = await journal.write(key, await _repair(journal, manifest, request))
    return claimed.continued_as


async def group_repairs(journal: Journal, group: str) -> tuple[RepairEntry, ...]:
    """All repairs of a group, in their order."""
    entries = await journal.read_many(await journal.keys(group_repairs_prefix(group)), RepairEntry)
    return tuple(entry for entry in entries if entry is not None)


async def current_siblings(journal: Journal, group: str, size: int) -> tuple[str, ...]:
    """The current rollouts of a group: the last replacement in the place of each."""
    current = {original: original for original in (rollout_id(group, number) for number in range(size))}
    for repair in await group_repairs(journal, group):
        current[original_of(repair.continued_as)] = repair.continued_as
    return tuple(current.values())


async def _repair(journal: Journal, manifest: RunManifest, request: RepairRequest) -> RepairEntry:
    failed = request.failure.workflow
    turns = await journal.read_many(await journal.keys(turn_prefix(failed)), TurnEntry)
    sampled = [turn.sampled for turn in turns if turn is not None and turn.sampled is not None]
    # the prompt before the claim that names its rollout: who reads the claim starts it
    goes_on = await _replacement(journal, manifest, request) if request.from_scratch else failed
    return RepairEntry(
        failure=request.failure,
        turns=len(turns),
        sampled_tokens=sum(turn.usage.completion_tokens for turn in sampled),
        continued_as=goes_on,
    )


async def _replacement(journal: Journal, manifest: RunManifest, request: RepairRequest) -> str:
    """Write the prompt of a replacement with an id and a seed of its own."""
    failed = request.failure.workflow
    earlier = await group_repairs(journal, request.group)
    replaced = {
        repair.continued_as
        for repair in earlier
        if repair.continued_as != repair.failure.workflow
        and original_of(repair.continued_as) == original_of(failed)
    }
    rollout = replacement_id(failed, len(replaced) + 1)
    prompt = await journal.read_required(prompt_key(failed), Prompt)
    seeded = prompt.model_copy(update={"seed": derived_seed(manifest.seed, rollout)})
    # a repeated attempt computes the same id and seed, and finds the prompt written
    await journal.write(prompt_key(rollout), seeded)
    return rollout
