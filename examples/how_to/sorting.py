"""Write a program that sorts numbers: an environment that runs what the agent wrote."""

import random
import shlex
from collections.abc import Iterator

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext

SORT = "$CLOTHO_AS_AGENT timeout 60 python3 /work/sort.py"


class SortingConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal", "file")
    max_agent_turns: int = 8
    tasks: int = 20
    """Number of items."""
    seed: int = 0


class Sorting(Environment):
    config_class = SortingConfig
    config: SortingConfig

    async def setup(self) -> None:
        drawn = random.Random(self.config.seed)
        numbers = (drawn.sample(range(1_000), 5) for _ in range(self.config.tasks))
        self.items: Iterator[Item] = iter(
            [{"id": str(n), "numbers": [*each]} for n, each in enumerate(numbers)]
        )

    async def get_next_item(self) -> Item | None:
        return next(self.items, None)

    def workspace_files(self, item: Item) -> dict[str, str]:
        return {"/work/example.txt": "30\n4\n100\n"}

    def format_prompt(self, item: Item) -> str:
        return (
            "Write /work/sort.py. It reads integers from standard input, one a line, and prints them in "
            "ascending order, one a line. example.txt has an input."
        )

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        cases = {"given": item["numbers"], "duplicates": [2, 1, 2], "negative": [3, -1, 0]}
        points = {name: float(self.sorts(numbers, ctx)) for name, numbers in cases.items()}
        return Reward(score=sum(points.values()) / len(points), breakdown=points)

    def sorts(self, numbers: object, ctx: ToolContext) -> bool:
        """Whether the agent's program prints the numbers in order. It sees the input only."""
        assert isinstance(numbers, list)
        given = "".join(f"{number}\n" for number in numbers)
        ran = ctx.terminal(f"printf %s {shlex.quote(given)} | {SORT} 2>/dev/null")
        return str(ran["output"]).split() == [str(number) for number in sorted(numbers)]
