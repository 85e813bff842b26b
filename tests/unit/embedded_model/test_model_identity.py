"""The same bits alone and in company, cached and fresh, in one process and another, undisturbed and resumed."""

import asyncio
import random

import httpx
import numpy as np
import pytest

from clotho.embedded.model.engine import Engine
from clotho.embedded.model.exact import Linear, attention, round_rows, round_to_grid
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import SamplingParameters

SHARED = [1, 565, 201, *range(100, 160)]


def prompts(count: int) -> list[list[int]]:
    """Of all lengths; half of them share a prefix."""
    numbers = random.Random(7)
    tails = [[numbers.randrange(572) for _ in range(1 + 9 * index)] for index in range(count)]
    return [SHARED + tail if index % 2 else tail for index, tail in enumerate(tails)]


async def generated(
    http: httpx.AsyncClient, prompt: list[int], seed: int, max_tokens: int = 40
) -> tuple[list[int], list[float]]:
    sampling = {"max_tokens": max_tokens, "seed": seed, "logprobs": 0, "ignore_eos": True}
    response = await http.post(
        "/inference/v1/generate", json={"token_ids": prompt, "sampling_params": sampling}
    )
    choice = response.json()["choices"][0]
    return choice["token_ids"], [each["logprob"] for each in choice["logprobs"]["content"]]


@pytest.mark.slow
async def test_alone_and_sixteen_at_once(http: httpx.AsyncClient, policy: Policy) -> None:
    together = await asyncio.gather(*(generated(http, p, seed) for seed, p in enumerate(prompts(16))))
    for seed, (prompt, expected) in enumerate(zip(prompts(16), together, strict=True)):
        engine = Engine(policy)
        engine.start()
        parameters = SamplingParameters(seed=seed, max_tokens=40, ignore_eos=True)
        steps = [step async for step in engine.generate(prompt, parameters)]
        engine.stop()
        assert ([s.sampled.token for s in steps], [s.sampled.logprob for s in steps]) == expected


async def test_resuming_at_any_offset_continues_identically(http: httpx.AsyncClient) -> None:
    ids, logprobs = await generated(http, SHARED, seed=11, max_tokens=48)
    resumed = await asyncio.gather(
        *(generated(http, SHARED + ids[:offset], seed=11, max_tokens=48 - offset) for offset in range(48))
    )
    for offset, continuation in enumerate(resumed):
        assert continuation == (ids[offset:], logprobs[offset:])


async def test_other_seeds_sample_otherwise(http: httpx.AsyncClient) -> None:
    outputs = await asyncio.gather(*(generated(http, SHARED, seed) for seed in range(8)))
    assert len({tuple(ids) for ids, _ in outputs}) == 8


def test_any_division_into_forward_passes_gives_the_same_logits(policy: Policy) -> None:
    numbers = random.Random(3)
    sequences = prompts(12)
    expected = []
    for sequence in sequences:
        cache = KeyValueCache(policy.model.architecture)
        expected.append([policy.model.extend([Extension(cache, [token])])[0] for token in sequence])
    caches = [KeyValueCache(policy.model.architecture) for _ in sequences]
    while unfinished := [i for i, s in enumerate(sequences) if len(caches[i].tokens) < len(s)]:
        chosen = numbers.sample(unfinished, numbers.randint(1, len(unfinished)))
        extensions = []
        for index in chosen:
            done = len(caches[index].tokens)
            extensions.append(
                Extension(caches[index], sequences[index][done : done + numbers.choice([1, 1, 5, 40])])
            )
        for index, row in zip(chosen, policy.model.extend(extensions), strict=True):
            assert (row == expected[index][len(caches[index].tokens) - 1]).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_linear_rows_do_not_see_each_other(scale: float) -> None:
    numbers = np.random.default_rng(5)
    linear = Linear(numbers.normal(size=(130, 300)) * 0.1, numbers.normal(size=130))
    rows = numbers.normal(size=(37, 300)) * scale
    together = linear(rows)
    assert all((linear(rows[i : i + 1])[0] == together[i]).all() for i in range(37))
    order = numbers.permutation(37)
    assert (linear(rows[order]) == together[order]).all()


def test_exact_sums_are_as_accurate_as_float32() -> None:
    numbers = np.random.default_rng(6)
    weight, rows = numbers.normal(size=(64, 400)) * 0.05, numbers.normal(size=(50, 400))
    error = np.abs(Linear(weight)(rows) - rows @ weight.T).max()
    single = np.abs(rows.astype(np.float32) @ weight.T.astype(np.float32) - rows @ weight.T).max()
    assert error < single


def test_attention_over_a_longer_masked_row_is_the_same() -> None:
    numbers = np.random.default_rng(8)
    queries = round_rows(numbers.normal(size=(3, 1, 20, 16)), 24)
    keys = round_rows(numbers.normal(size=(3, 50, 16)) * 2, 24)
    values = round_to_grid(numbers.normal(size=(3, 50, 16)), 22)
    together = attention(queries, keys, values, 30)
    for row in range(20):
        seen = 31 + row
        alone = attention(queries[:, :, row : row + 1], keys[:, :seen], values[:, :seen], seen - 1)
        assert (alone[:, :, 0] == together[:, :, row]).all()
