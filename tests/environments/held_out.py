"""OneFile with held-out items, and a metric of its own of evaluations."""

from collections.abc import Sequence

from clotho.environment import EvaluatedItem, Item
from tests.environments.one_file import OneFile, OneFileConfig


class HeldOutConfig(OneFileConfig):
    first: int = 0


class HeldOut(OneFile):
    config_class = HeldOutConfig
    held_out = {"first": 100}
    config: HeldOutConfig

    async def get_next_item(self) -> Item:
        item = await super().get_next_item()
        return {"number": int(str(item["number"])) + self.config.first}

    async def evaluate(self, items: Sequence[EvaluatedItem]) -> dict[str, float]:
        return {
            "first number": float(min(int(str(each.item["number"])) for each in items)),
            "turns in all": float(sum(rollout.turns for each in items for rollout in each.rollouts)),
        }
