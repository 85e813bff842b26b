"""Activities that look up or write a rollout's end."""

import asyncio

from temporalio import activity

from activities.guard import activity_guard
from clotho import failpoints
from clotho.identifiers.ids import original_of
from clotho.identifiers.keys import end_key, reward_key
from clotho.journal import Journal
from clotho.monitoring.metrics import Metrics
from clotho.rollouts.rollout import ConcludeRequest, EndEntry, RolloutSummary
from clotho.rollouts.verification import RewardEntry
from clotho.runs.rollouts import read_end, sandbox_losses


class Rollouts:
    """Activities of the environment's queue."""

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        self._journal = journal
        self._metrics = metrics

    @activity.defn
    async def find_end(self, rollout: str) -> RolloutSummary | None:
        """The rollout's summary, if it was scored before."""
        async with activity_guard(rollout):
            entry = await read_end(self._journal, rollout)
        return entry.summary if entry else None

    @activity.defn
    async def conclude(self, request: ConcludeRequest) -> RolloutSummary:
        """Write the rollout's end, then seal its entries into one object."""
        async with activity_guard(request.rollout):
            reward = None
            if request.parent is None:
                reward = await self._journal.read_required(reward_key(request.rollout), RewardEntry)
            losses, before = await asyncio.gather(
                sandbox_losses(self._journal, request.rollout, request.losses),
                # sealing frees the key: a later attempt would write another end there
                self._journal.read(end_key(request.rollout), EndEntry),
            )
            original = original_of(request.rollout)
            summary = RolloutSummary(
                rollout=request.rollout,
                replacement_of=original if original != request.rollout else None,
                ending=request.ending,
                score=reward.score if reward is not None else 0.0,
                reward_error=reward is not None and reward.error is not None,
                verifier_failed=reward is not None and reward.verifier_failed is not None,
                verified_again=reward is not None and (reward.epoch > 0 or reward.claim > 0),
                losses=losses,
                parent=request.parent,
                left=request.left,
                **request.totals.model_dump(),
            )
            mine = EndEntry(summary=summary)
            end = before or await self._journal.write(end_key(request.rollout), mine)
            if end is mine:  # an earlier attempt has counted its own
                self._metrics.count_rollout(end.summary)
            await failpoints.reach("end.written", end_key(request.rollout))
            await self._journal.seal(request.rollout)
        return end.summary
