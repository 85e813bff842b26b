"""Distributions over toolsets: each toolset of one is drawn by itself, with its own probability."""

import random
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from clotho.errors import InvalidInput

Probability = Annotated[float, Field(ge=0.01, le=1)]
Distribution = str | Annotated[dict[str, Probability], Field(min_length=1)]
"""The name of one of DISTRIBUTIONS, or the probabilities of toolsets."""

EVERYDAY = ("browser", "file", "image_gen", "moa", "terminal", "vision", "web")


def chances(**toolsets: float) -> dict[str, float]:
    return toolsets


DISTRIBUTIONS: dict[str, dict[str, float]] = {
    "default": dict.fromkeys(EVERYDAY, 1),
    "balanced": dict.fromkeys(EVERYDAY, 0.5),
    "browser_only": chances(browser=1),
    "browser_tasks": chances(browser=0.97, terminal=0.15, vision=0.12),
    "browser_use": chances(browser=1, vision=0.7, web=0.8),
    "creative": chances(image_gen=0.9, vision=0.9, web=0.3),
    "development": chances(file=0.8, moa=0.6, terminal=0.8, vision=0.1, web=0.3),
    "image_gen": chances(image_gen=0.9, moa=0.1, terminal=0.45, vision=0.9, web=0.55),
    "minimal": chances(web=1),
    "mixed_tasks": chances(browser=0.92, file=0.92, image_gen=0.15, terminal=0.92, vision=0.15, web=0.35),
    "reasoning": chances(moa=0.9, terminal=0.2, web=0.3),
    "research": chances(browser=0.7, moa=0.4, terminal=0.1, vision=0.5, web=0.9),
    "safe": chances(browser=0.7, image_gen=0.6, moa=0.5, vision=0.6, web=0.8),
    "science": chances(browser=0.5, file=0.94, image_gen=0.15, moa=0.1, terminal=0.94, vision=0.65, web=0.94),
    "terminal_only": chances(file=1, terminal=1),
    "terminal_tasks": chances(browser=0.75, file=0.97, image_gen=0.1, terminal=0.97, vision=0.5, web=0.97),
    "terminal_web": chances(file=1, terminal=1, web=1),
}


def probabilities(distribution: Distribution) -> Mapping[str, float]:
    """The probability of each toolset; raises InvalidInput for an unknown name."""
    if not isinstance(distribution, str):
        return distribution
    if distribution not in DISTRIBUTIONS:
        raise InvalidInput(
            f"unknown distribution {distribution!r}; known are {', '.join(sorted(DISTRIBUTIONS))}"
        )
    return DISTRIBUTIONS[distribution]


def draws(by_toolset: Mapping[str, float], seed: int) -> Iterator[frozenset[str]]:
    """Samples of a distribution, one after the other: the same ones for the same seed."""
    source = random.Random(seed)
    while True:
        # sorted: the order of a dictionary must not decide what a seed draws
        yield frozenset(name for name in sorted(by_toolset) if source.random() < by_toolset[name])
