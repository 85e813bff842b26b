"""The metrics that an environment itself computes from an evaluation's scored groups."""

from collections.abc import Sequence

from clotho.environment import EvaluatedItem, EvaluatedRollout
from clotho.environment.instances import Environments
from clotho.identifiers.keys import reward_key
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.run import RunManifest
from clotho.rollouts.verification import RewardEntry


async def own_metrics(
    journal: Journal, environments: Environments, manifest: RunManifest, groups: Sequence[GroupEntry]
) -> dict[str, float]:
    """The result of the environment's `evaluate` on these scored groups.

    Raises InvalidInput where the environment isn't here, EnvironmentFailed for what its code raises.
    """
    # before the environment is made, which may take long or not be here
    if not groups:
        return {}
    environment = await environments.get(manifest)
    if not environment.evaluates:
        return {}
    return await environment.evaluate([await _evaluate(journal, entry) for entry in groups])


async def _evaluate(journal: Journal, entry: GroupEntry) -> EvaluatedItem:
    rewards = await journal.read_many([reward_key(each.rollout) for each in entry.siblings], RewardEntry)
    rollouts = tuple(
        EvaluatedRollout(
            score=each.score,
            breakdown=reward.breakdown if reward is not None else {},
            outcome=each.ending.outcome,
            limit=each.ending.limit,
            turns=each.turns,
            sampled_tokens=each.sampled_tokens,
            tool_errors=each.tool_errors,
        )
        for each, reward in zip(entry.siblings, rewards, strict=True)
    )
    return EvaluatedItem(item=entry.item, rollouts=rollouts)
