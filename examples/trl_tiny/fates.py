"""The fates of the groups that a trainer ordered: which step of its last checkpoint's line was trained on them."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from clotho_client.orders import GroupAnswer, OrderState
from pydantic import BaseModel

from clotho.errors import GroupRejected
from clotho.frozen_model import FrozenModel
from clotho.plugins.trainers.trl import Completion, completions
from clotho.runs.ledger import Claim, Ledger
from clotho.training.rows import TrainingRow, training_groups
from examples.trl_tiny.chain import Chain
from examples.trl_tiny.task import TEMPERATURE

ROUNDING = 1e-5


class StepEntry(BaseModel):
    """What TRL logged of a step."""

    step: int
    """Its number, from 1; checkpoints keep the log of the steps that led to them."""
    reward: float
    """Mean over the rows that have one."""
    num_tokens: int
    """Prompt tokens and sampled ones, of this step and all before it."""


class Fates(FrozenModel):
    """Counts of a run's groups."""

    ordered: int
    scored: int
    """Groups whose rollouts all have rewards."""
    acknowledged: int
    """Groups whose rows arrived at the trainer."""
    rollouts: int
    lost: int
    """Scored groups that no step was trained on."""
    trained_twice: int
    """Groups that several steps were trained on."""


async def fates_of(chain: Chain) -> Fates:
    journal, run = chain.cluster.open_journal(), chain.training.run
    ledger = Ledger(journal, run)
    claims = await ledger.load()
    undelivered = await ledger.undelivered(claims)
    scored = {}
    async for group in training_groups(journal, run):
        if not isinstance(group, GroupRejected):
            scored[group.group] = group.rows
    rows = {claim.group: _given(scored.get(claim.group), chain.training.group_size) for claim in claims}
    times = times_trained(claims, rows, read_log(chain.log))
    return Fates(
        ordered=len(claims),
        scored=len(scored),
        acknowledged=len(claims) - len(undelivered),
        rollouts=sum(len(rows[group]) for group in scored),
        lost=sum(not times[group] for group in scored),
        trained_twice=sum(count > 1 for count in times.values()),
    )


def _given(rows: tuple[TrainingRow, ...] | None, size: int) -> list[Completion]:
    """What the trainer was given of a group; of one that isn't scored, rows without rewards."""
    state = OrderState.REFUSED if rows is None else OrderState.FINISHED
    return completions(GroupAnswer(name="", group="", state=state, rows=rows), size, 0, TEMPERATURE)


def read_log(path: Path) -> list[StepEntry]:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [StepEntry.model_validate(entry) for entry in entries if "reward" in entry]


def times_trained(
    claims: Sequence[Claim], rows: dict[str, list[Completion]], log: Sequence[StepEntry]
) -> Counter[str]:
    """The number of steps that were trained on each group.

    A step was trained on the groups that were ordered for it if its mean reward and number of tokens are theirs.
    """
    times: Counter[str] = Counter()
    tokens = 0
    for entry in log:
        ordered = [claim.group for claim in claims if claim.step == entry.step - 1]
        if _is_trained_on(entry, entry.num_tokens - tokens, [row for name in ordered for row in rows[name]]):
            times.update(ordered)
        tokens = entry.num_tokens
    return times


def _is_trained_on(entry: StepEntry, tokens: int, rows: Sequence[Completion]) -> bool:
    rewards = [row.reward for row in rows if row.reward is not None]
    if not rewards or sum(len(row.prompt_ids) + sum(row.env_mask) for row in rows) != tokens:
        return False
    return math.isclose(entry.reward, sum(rewards) / len(rewards), abs_tol=ROUNDING)
