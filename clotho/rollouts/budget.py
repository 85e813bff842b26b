"""Prices of models' tokens, budgets of runs and rollouts, and the spending that is held against them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Self

from pydantic import Field, PositiveFloat, PositiveInt

from clotho.errors import InvalidInput
from clotho.frozen_model import WHERE_SET, FrozenModel, Seconds

MILLION = 1_000_000
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
CALLS = "calls."
Calls = Annotated[dict[str, int], WHERE_SET]
Cost = Annotated[float, WHERE_SET]


class Price(FrozenModel):
    """The price of a model's tokens, in US dollars per million.

    None is built in: prices change, and a wrong one would be believed.
    """

    prompt: Dollars
    sampled: Dollars
    cached_prompt: Dollars | None = None
    """Price of prompt tokens that the server had cached; None: that of the others."""

    def cost(self, prompt_tokens: int, cached_prompt_tokens: int, sampled_tokens: int) -> float:
        """The cost of a number of tokens in dollars; the cached ones are part of the prompt's."""
        cached = min(cached_prompt_tokens, prompt_tokens)
        for_cached = self.prompt if self.cached_prompt is None else self.cached_prompt
        full = (prompt_tokens - cached) * self.prompt + sampled_tokens * self.sampled
        return (full + cached * for_cached) / MILLION


def required_price(prices: Mapping[str, Price] | None, model: str) -> Price:
    """The price of `model`; raises InvalidInput where it isn't known."""
    if (price := (prices or {}).get(model)) is None:
        raise InvalidInput(
            f"a budget of cost needs the price of {model}, which isn't known: give it in US dollars per million "
            f'tokens, as in --prices \'{{"{model}": {{"prompt": 1.25, "cached_prompt": 0.125, "sampled": 10}}}}\''
        )
    return price


class Spending(FrozenModel):
    """Work that was done and paid for."""

    turns: int = 0
    """Turns whose answer is in the journal, each counted once however often it was asked for."""
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    """The part of `prompt_tokens` that the server had cached."""
    sampled_tokens: int = 0
    uncounted_turns: int = 0
    """Turns whose tokens the server didn't report."""
    active_seconds: Seconds = 0.0
    """Seconds of model and tool calls, of all rollouts together."""
    calls: dict[str, int] = {}
    """Tool -> calls of it."""
    began: float | None = None
    """Unix time at which the first turn was begun."""

    def __add__(self, other: "Spending") -> "Spending":
        begun = [each.began for each in (self, other) if each.began is not None]
        return Spending(
            turns=self.turns + other.turns,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens + other.cached_prompt_tokens,
            sampled_tokens=self.sampled_tokens + other.sampled_tokens,
            uncounted_turns=self.uncounted_turns + other.uncounted_turns,
            active_seconds=self.active_seconds + other.active_seconds,
            calls=dict(Counter(self.calls) + Counter(other.calls)),
            began=min(begun, default=None),
        )

    def cost(self, price: Price | None) -> float | None:
        """The cost in US dollars; None without a price."""
        if price is None:
            return None
        return price.cost(self.prompt_tokens, self.cached_prompt_tokens, self.sampled_tokens)


def total(spendings: Iterable[Spending]) -> Spending:
    return sum(spendings, Spending())


class Budget(FrozenModel):
    """Bounds on the spending of one rollout. None: no bound.

    It is `Limits.rollout_budget`. `RolloutState.limit_met` compares it with `Totals.spent` before each turn. A
    rollout that has met a bound ends with the limit `budget.NAME`, and is verified. Its children have what is left.
    """

    prompt_tokens: Annotated[PositiveInt | None, WHERE_SET] = None
    sampled_tokens: Annotated[PositiveInt | None, WHERE_SET] = None
    cost: Annotated[PositiveFloat | None, WHERE_SET] = None
    """US dollars."""
    active_seconds: Annotated[PositiveFloat | None, WHERE_SET] = None
    """Seconds of model and tool calls."""
    calls: Annotated[dict[str, PositiveInt], WHERE_SET] = {}
    """Tool -> most calls of it."""

    def bounds(self) -> Iterator[tuple[str, float]]:
        """The name and value of each bound."""
        for name in type(self).model_fields:
            if name != "calls" and (bound := getattr(self, name)) is not None:
                yield name, bound
        yield from ((f"{CALLS}{tool}", most) for tool, most in self.calls.items())

    def met(self, spent: Mapping[str, float]) -> str | None:
        """The name of the first bound that `spent`, by names of bounds, has reached."""
        return next((name for name, bound in self.bounds() if spent.get(name, 0) >= bound), None)

    def left(self, spent: Mapping[str, float]) -> Self:
        """What is left of the budget: each bound is at least the smallest that a budget may have."""
        values = {name: max(1e-9, bound - spent.get(name, 0)) for name, bound in self.bounds()}
        whole = {
            name: max(1, int(value))
            for name, value in values.items()
            if not (name == "cost" or name.endswith("_seconds"))
        }
        values |= whole
        calls = {tool: values.pop(f"{CALLS}{tool}") for tool in self.calls}
        return type(self).model_validate({**values, "calls": calls})


class RunBudget(Budget):
    """Bounds on the spending of a run: one that is met pauses it.

    `BudgetWatch` (activities/budgets.py) counts the turns that its process samples, adds those of other processes,
    and pauses the run. The last `BudgetEntry` in the journal holds: `Operations.change_budget` replaces it, and
    `Operations.resume` refuses while it is used up (clotho/runs/operations.py).
    """

    wall_seconds: Annotated[PositiveFloat | None, WHERE_SET] = None
    """Seconds since the run's first turn, pauses and outages included."""


class Account(FrozenModel):
    """The budget of a run and the prices of models: they may change between restarts."""

    budget: RunBudget | None = None
    prices: dict[str, Price] | None = None
    """Model -> its price."""


class BudgetEntry(FrozenModel):
    """The budget of a run, and its model's price, since they last changed: the last entry counts."""

    budget: RunBudget = RunBudget()
    price: Price | None = None

    def spent(self, spending: Spending, now: float) -> dict[str, float]:
        """The spending by names of bounds."""
        return {
            "prompt_tokens": spending.prompt_tokens,
            "sampled_tokens": spending.sampled_tokens,
            "cost": spending.cost(self.price) or 0.0,
            "active_seconds": spending.active_seconds,
            "wall_seconds": now - spending.began if spending.began is not None else 0.0,
            **{f"{CALLS}{tool}": calls for tool, calls in spending.calls.items()},
        }

    def met(self, spending: Spending, now: float) -> str | None:
        """The reason to pause, if a bound is met."""
        spent = self.spent(spending, now)
        if (name := self.budget.met(spent)) is None:
            return None
        return f"its budget is used up: {bound_text(name, spent[name], dict(self.budget.bounds())[name])}"


class SpendingPage(FrozenModel):
    """Spending of the rollouts that one model process has sampled turns for: its last page counts."""

    rollouts: dict[str, Spending]


def bound_text(name: str, spent: float, bound: float) -> str:
    """A bound and what is spent of it, in words."""
    if name == "cost":
        return f"${spent:,.4g} of ${bound:,.6g}"
    what = f"calls of {name.removeprefix(CALLS)}" if name.startswith(CALLS) else name.replace("_", " ")
    return f"{spent:,.0f} of {bound:,.10g} {what}"
