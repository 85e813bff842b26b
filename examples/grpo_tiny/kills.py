"""Training to its end while parts of the chain are killed."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clotho.errors import Unavailable
from clotho.frozen_model import FrozenModel
from examples.grpo_tiny.chain import Chain

LONGEST_DELAY = 4.0
PATIENCE = 300.0
"""Seconds without another batch after which a run counts as stuck."""
POLL_SECONDS = 0.2

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Strike:
    """A SIGKILL to come."""

    part: str
    step: int
    """Step of the kill: the trainer has that step's batch."""
    delay: float = 0.0
    """Seconds after that."""


class Kill(FrozenModel):
    """One that came."""

    part: str
    at: float
    """Unix time."""


def draw_strikes(parts: Sequence[str], kills: int, steps: int, seed: int) -> list[Strike]:
    """Draw kills at random moments of a run, on random parts: on each of them before any a second time."""
    draw = random.Random(seed)
    struck: list[str] = []
    while len(struck) < kills:
        struck += draw.sample(parts, len(parts))
    moments = sorted(draw.sample(range(2, steps + 1), kills))
    return [
        Strike(part, step, draw.uniform(0, LONGEST_DELAY))
        for part, step in zip(struck[:kills], moments, strict=True)
    ]


async def train(chain: Chain, strikes: Sequence[Strike], announce: Announce) -> tuple[Kill, ...]:
    """Run the chain to its trainer's last step. Raises Unavailable for a run that doesn't go on."""
    kills = []
    await chain.start()
    try:
        for strike in strikes:
            await _until_begun(chain, strike.step)
            await asyncio.sleep(strike.delay)
            if await chain.has_trained():
                break
            kills.append(Kill(part=strike.part, at=time.time()))
            await chain.strike(strike.part)
            announce(f"in step {strike.step}, killed and started again: {strike.part}")
        await _until_begun(chain, chain.training.steps + 1)
    finally:
        await chain.stop()
    await chain.cancel_open_groups()
    return tuple(kills)


async def _until_begun(chain: Chain, step: int) -> None:
    """Or until training is done: what the last step made is sampled from, then."""
    begun, since = -1, time.monotonic()
    while not await chain.has_trained():
        now = await asyncio.to_thread(chain.steps.last_begun)
        if now >= step:
            return
        if now > begun:
            begun, since = now, time.monotonic()
        if time.monotonic() - since > PATIENCE:
            raise Unavailable(f"no batch within {PATIENCE:.0f} s after that of step {begun}")
        await asyncio.sleep(POLL_SECONDS)
