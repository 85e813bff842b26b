"""Resumed turns are distributed as undisturbed ones, on a server whose noise is not keyed by position.

Lengths are compared by the two-sample Kolmogorov-Smirnov statistic (conservative for whole numbers), repeats by the
z statistic of two proportions. Everything is seeded: the same figures come out every time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing

import numpy as np
import pytest

from clotho.embedded.model.bundled import TINY
from clotho.errors import ModelUnavailable
from clotho.inference.base import ChatMessage, SampledTurn, Sampling, TurnCall
from clotho.inference.token_exact import TokenExact
from clotho.inference.token_http import TokenHTTP
from clotho.inference.token_server import TokenRequest
from clotho.inference.vllm import VLLMGenerate
from clotho.testing.scripted_model import serving
from tests.token_servers import SequenceSampler, chance

Open = Callable[..., TokenExact]
TURNS = 500
AT_ONCE = 20
BREAKS = 0.1
"""The chance of a connection to break at any token."""
TASK = (ChatMessage(role="user", content="Go on."),)
SAME = 1.63
"""Kolmogorov's critical value at 1 %: below it, nothing speaks against one distribution."""
CLEARLY_OTHER = 2.5
"""Beyond one chance in 100,000."""

Ids = tuple[int, ...]


def break_of(key: str) -> int | None:
    """After how many tokens a request's connection breaks: its own die, geometric."""
    return 1 + int(np.log(1 - chance("break", key)) / np.log(1 - BREAKS)) if "/turn/" in key else None


@pytest.fixture
async def sampler() -> AsyncIterator[tuple[SequenceSampler, str]]:
    server = SequenceSampler()
    async with serving(server) as url:
        yield server, url


async def all_of(sample: Callable[[int], "asyncio.Future[Ids] | object"]) -> list[Ids]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> Ids:
        async with gate:
            return await sample(number)  # type: ignore[misc, no-any-return]

    return await asyncio.gather(*(one(number) for number in range(TURNS)))


def sampling(number: int) -> Sampling:
    return Sampling(seed=int(chance("seed", number) * 2**62), max_tokens=400)


async def test_lengths_and_repeats(sampler: tuple[SequenceSampler, str], open_backend: Open) -> None:
    server, url = sampler
    backend = open_backend(url)

    async def through_clotho(number: int) -> SampledTurn:
        key = f"run/g{number:06}/r0/turn/0000"
        while True:
            try:
                return await backend.sample_turn(
                    TurnCall(key=key, model=TINY, messages=TASK, sampling=sampling(number))
                )
            except ModelUnavailable:
                continue

    resumed_at: dict[int, int] = {}

    async def resumed(number: int) -> Ids:
        tokens = (await through_clotho(number)).tokens
        assert tokens is not None
        if tokens.resumed_at:
            resumed_at[number] = tokens.resumed_at[0]
        return tokens.ids

    server.cut = break_of
    continued = await all_of(resumed)
    connection = TokenHTTP(url)
    plain = VLLMGenerate(connection)

    async def sampled(number: int, key: str, before: Ids = (), seed: int | None = None) -> Ids:
        """Straight from the server; what was sampled until the connection broke."""
        asked = sampling(number)
        request = TokenRequest(
            key=key,
            model=TINY,
            prompt_ids=(1, *before),
            sampling=asked.model_copy(update={"seed": asked.seed if seed is None else seed}),
        )
        ids: list[int] = []
        try:
            async with aclosing(plain.stream(request)) as stream:
                async for chunk in stream:
                    ids += chunk.ids
        except ModelUnavailable:
            return (*ids, -1)
        return tuple(ids)

    async def undisturbed(number: int) -> Ids:
        return await sampled(number, f"calm/{number}", seed=int(chance("calm", number) * 2**62))

    async def afresh(number: int) -> Ids:
        """Without a write-ahead: what broke off is thrown away."""
        attempt = 0
        while (ids := await sampled(number, f"{number}/turn/{attempt}", seed=number << 20 | attempt))[-1] < 0:
            attempt += 1
        return ids

    async def same_seed(number: int) -> Ids:
        """Goes on where it broke off, with the random numbers that it began with."""
        ids: Ids = ()
        while (more := await sampled(number, f"{number}/turn/s{len(ids)}", ids))[-1] < 0:
            ids += more[:-1]
        return ids + more

    calm, fresh, same = [await all_of(way) for way in (undisturbed, afresh, same_seed)]
    await connection.aclose()

    assert len(resumed_at) > TURNS / 3
    lengths = [np.array([len(ids) for ids in way]) for way in (calm, continued, fresh, same)]
    assert distance(lengths[0], lengths[1]) < SAME
    assert distance(lengths[0], lengths[2]) > CLEARLY_OTHER and lengths[2].mean() < 0.7 * lengths[0].mean()
    assert distance(lengths[0], lengths[3]) > CLEARLY_OTHER
    # The first token after a resumption against the turn's first: both drawn by a request's first number.
    at = resumed_at
    first_breaks = {number: break_of(f"{number}/turn/s0") or 0 for number in range(TURNS)}
    expected = repeats(calm, {number: 1 + number % 12 for number in range(TURNS)})
    assert abs(z(repeats(continued, at), expected)) < 3
    assert z(repeats(same, first_breaks), expected) > 5


def distance(one: np.ndarray, other: np.ndarray) -> float:  # type: ignore[type-arg]
    """Kolmogorov-Smirnov's D, scaled by the samples' sizes."""
    grid = np.union1d(one, other)
    shares = [np.searchsorted(np.sort(each), grid, side="right") / len(each) for each in (one, other)]
    return float(
        np.abs(shares[0] - shares[1]).max() * np.sqrt(len(one) * len(other) / (len(one) + len(other)))
    )


def repeats(turns: Sequence[Ids], offsets: dict[int, int]) -> tuple[int, int]:
    """How often a turn's token at an offset is the turn's first token, and of how many."""
    pairs = [
        (turns[number][0], turns[number][at]) for number, at in offsets.items() if 0 < at < len(turns[number])
    ]
    return sum(one == other for one, other in pairs), len(pairs)


def z(one: tuple[int, int], other: tuple[int, int]) -> float:
    share = (one[0] + other[0]) / (one[1] + other[1])
    spread = np.sqrt(share * (1 - share) * (1 / one[1] + 1 / other[1]))
    return float((one[0] / one[1] - other[0] / other[1]) / spread)
