"""Buy what is on a list: an environment with tools of its own."""

from typing import Annotated, Literal

from pydantic import Field

from clotho.environment import (
    AgentResult,
    Environment,
    EnvironmentConfig,
    Item,
    StatefulTools,
    ToolContext,
    tool,
)

PRICES = {"apple": 2, "bread": 3, "milk": 1}
LISTS = [{"apple": 3, "milk": 1}, {"bread": 2}, {"milk": 4, "bread": 1, "apple": 1}]

Product = Literal["apple", "bread", "milk"]


@tool(read_only=True)
def price(product: Product) -> int:
    """Say what one piece of a product costs."""
    return PRICES[product]


class Basket(StatefulTools):
    pieces: dict[str, int] = {}

    @tool(idempotent=True)
    def put(self, product: Product, number: Annotated[int, Field(ge=1, le=9)] = 1) -> dict[str, int]:
        """Put products into the basket; the result is all that is in it.

        Args:
            product: What to buy.
            number: How many pieces.
        """
        self.pieces[product] = self.pieces.get(product, 0) + number
        return self.pieces

    @tool
    def check_out(self, ctx: ToolContext) -> str:
        """Pay for the basket. The receipt goes to /work/receipt."""
        total = sum(PRICES[product] * number for product, number in self.pieces.items())
        ctx.terminal(f"echo {total} >> /work/receipt")
        self.pieces = {}
        return f"Paid {total}."


class ShopConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("environment",)
    max_agent_turns: int = 10


class Shop(Environment):
    config_class = ShopConfig

    async def setup(self) -> None:
        self.lists = iter(LISTS)

    async def get_next_item(self) -> Item | None:
        wanted = next(self.lists, None)
        return None if wanted is None else {"wanted": {**wanted}}

    def format_prompt(self, item: Item) -> str:
        return f"Buy what is on this list, no more, then check out once: {item['wanted']}"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        wanted = item["wanted"]
        assert isinstance(wanted, dict)
        due = sum(PRICES[product] * int(str(number)) for product, number in wanted.items())
        return float(ctx.terminal("cat /work/receipt")["output"] == f"{due}\n")
