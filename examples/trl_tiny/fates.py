"""What became of the groups that a trainer ordered."""

from dataclasses import dataclass

from clotho.runs.groups import scored_groups
from clotho.runs.ledger import Ledger
from examples.trl_tiny.chain import Chain


@dataclass(frozen=True)
class Fates:
    """Counts of a run's groups."""

    ordered: int
    scored: int
    acknowledged: int
    rollouts: int

    def __str__(self) -> str:
        return (
            f"{self.ordered} ordered, {self.scored} scored with {self.rollouts} rollouts, "
            f"{self.acknowledged} acknowledged"
        )


async def fates_of(chain: Chain) -> Fates:
    journal, run = chain.cluster.open_journal(), chain.training.run
    ledger = Ledger(journal, run)
    claims = await ledger.load()
    undelivered = await ledger.undelivered(claims)
    scored = await scored_groups(journal, run)
    rollouts = {summary.rollout for _, entry in scored for summary in entry.siblings}
    return Fates(len(claims), len(scored), len(claims) - len(undelivered), len(rollouts))
