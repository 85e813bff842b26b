"""Prices of models' tokens. None are built in: they change, and a wrong one would be believed."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel

MILLION = 1_000_000
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(FrozenModel):
    """The price of a model's tokens, in US dollars per million."""

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
