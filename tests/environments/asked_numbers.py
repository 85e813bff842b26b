"""Items whose solution is a number in a file, and verifiers that read it with and without care."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Solution, ToolContext


class NumbersConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    max_agent_turns: int = 2


class Careful(Environment):
    config_class = NumbersConfig

    async def setup(self) -> None:
        self.numbers = iter((7,))

    async def get_next_item(self) -> Item | None:
        number = next(self.numbers, None)
        return None if number is None else {"id": f"number-{number}", "number": number}

    def format_prompt(self, item: Item) -> str:
        return f"Write {item['number']} into /work/number."

    def solution(self, item: Item) -> Solution:
        return Solution(command=f"echo {item['number']} > /work/number")

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float((ctx.read_bytes("/work/number") or b"").strip() == str(item["number"]).encode())


class Careless(Careful):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        found = ctx.read_bytes("/work/number")
        return 0.0 if found is None else float(int(found) == item["number"])
