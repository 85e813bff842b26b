"""Resumed turns are distributed as undisturbed ones, on a server whose noise is not keyed by position.

Lengths are compared by the two-sample Kolmogorov-Smirnov statistic (conservative for whole numbers), repeats by the
z statistic of two proportions. Everything is seeded: the same figures come out every time.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pytest

from clotho.embedded.model.bundled import TINY
from clotho.errors import ModelUnavailable
from clotho.models.backend import SampledTokens, TurnCall
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.models.token_exact import TokenExact
from clotho.testing.scripted_model import serving
from tests.token_servers import EOS, SequenceSampler, chance

Open = Callable[..., TokenExact]
Ids = tuple[int, ...]

TURNS = 200
REFERENCE = 2_000
"""Turns that need no server."""
AT_ONCE = 20
LONGEST = 400
"""Tokens of a turn: with the same numbers again and again some would never end."""
BREAKS = 0.1
"""The chance of a connection to break at any token."""
TASK = (ChatMessage(role="user", content="Go on."),)
LAST = 2
"""What the prompt ends with is no word: the first token has no likeliest."""
SAME = 1.63
"""Kolmogorov's critical value at 1 %: below it, nothing speaks against one distribution."""
OTHER = 2.5
"""Exceeded by one distribution less than once in 100,000 times."""


def break_of(key: str) -> int:
    """After how many tokens a request's connection breaks, geometrically distributed."""
    return 1 + int(np.log(1 - chance("break", key)) / np.log(1 - BREAKS))


def sampled(name: str, last: int = LAST, stop: int | None = None) -> Ids:
    """What the sampler samples with the seed of that name until it breaks off."""
    asked = {
        "seed": int(chance("seed", name) * 2**62),
        "max_tokens": LONGEST,
        "temperature": 1.0,
        "top_k": -1,
    }
    return tuple(
        token for (token, _, _), _ in zip(SequenceSampler().turn(last, asked), _until(stop), strict=False)
    )


def _until(stop: int | None) -> "range | count[int]":
    return count() if stop is None else range(stop)


def afresh(name: str) -> Ids:
    """Without a write-ahead: what broke off is thrown away, and the turn sampled anew."""
    for attempt in count():
        ids = sampled(f"{name}/{attempt}")
        if len(ids) <= break_of(f"{name}/{attempt}"):
            return ids
    raise AssertionError


def same_seed(name: str) -> Ids:
    """Goes on where it broke off, with the random numbers that it began with."""
    ids: Ids = ()
    while len(ids) < LONGEST and (not ids or ids[-1] != EOS):
        ids += sampled(name, ids[-1] if ids else LAST, break_of(f"{name}/{len(ids)}"))
    return ids


async def interrupted(open_backend: Open) -> list[SampledTokens]:
    """Turns over HTTP whose connections break, asked for until they are whole."""
    server = SequenceSampler(cut=lambda key: break_of(key) if "/turn/" in key else None)
    gate = asyncio.Semaphore(AT_ONCE)
    async with serving(server) as url:
        backend = open_backend(url)

        async def turn(number: int) -> SampledTokens:
            sampling = Sampling(seed=int(chance("turn", number) * 2**62), max_tokens=LONGEST)
            key = f"run/g{number:06}/r0/turn/0000"
            call = TurnCall(key=key, model=TINY, messages=TASK, sampling=sampling)
            async with gate:
                while True:
                    try:
                        tokens = (await backend.sample_turn(call)).tokens
                    except ModelUnavailable:
                        continue
                    assert tokens is not None
                    return tokens

        return await asyncio.gather(*(turn(number) for number in range(TURNS)))


@pytest.mark.slow
async def test_lengths_and_repeats_of_resumed_turns(open_backend: Open) -> None:
    resumed = await interrupted(open_backend)
    names = [str(number) for number in range(REFERENCE)]
    calm, anew, repeated = ([way(name) for name in names] for way in (sampled, afresh, same_seed))
    lengths = [len(turn.ids) for turn in resumed]
    calm_lengths, anew_lengths = [len(ids) for ids in calm], [len(ids) for ids in anew]
    assert sum(bool(turn.resumed_at) for turn in resumed) > TURNS / 3
    assert distance(lengths, calm_lengths) < SAME
    assert distance(anew_lengths, calm_lengths) > OTHER
    assert np.mean(anew_lengths) < 0.7 * np.mean(calm_lengths)

    # A request's first token against the turn's first: the same number, drawn again, chooses the same.
    again = repeats([(turn.ids, at) for turn in resumed for at in turn.resumed_at])
    expected = repeats([(ids, break_of(f"{name}/0")) for name, ids in zip(names, calm, strict=True)])
    biased = repeats([(ids, break_of(f"{name}/0")) for name, ids in zip(names, repeated, strict=True)])
    assert abs(z(again, expected)) < 3
    assert z(biased, expected) > 10


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """Kolmogorov-Smirnov's D of two samples, scaled by their sizes."""
    grid = np.union1d(one, other)
    ours, theirs = (np.searchsorted(np.sort(each), grid, side="right") / len(each) for each in (one, other))
    return float(np.abs(ours - theirs).max() * np.sqrt(len(one) * len(other) / (len(one) + len(other))))


def repeats(turns: Sequence[tuple[Ids, int]]) -> tuple[int, int]:
    """How often a turn's token at an offset is the turn's first token, and of how many."""
    pairs = [(ids[0], ids[offset]) for ids, offset in turns if offset < len(ids)]
    return sum(first == later for first, later in pairs), len(pairs)


def z(one: tuple[int, int], other: tuple[int, int]) -> float:
    share = (one[0] + other[0]) / (one[1] + other[1])
    spread = np.sqrt(share * (1 - share) * (1 / one[1] + 1 / other[1]))
    return float((one[0] / one[1] - other[0] / other[1]) / spread)
