"""Sampled tokens follow the distribution they should."""

from typing import Any

import numpy as np
import pytest

from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import SamplingParameters, choose, log_softmax, uniform

DRAWS = 20_000


@pytest.fixture(scope="module")
def logprobs(policy: Policy) -> np.ndarray:
    """Of a prompt whose continuation is wide open."""
    cache = KeyValueCache(policy.model.architecture)
    row: np.ndarray = log_softmax(policy.model.extend([Extension(cache, [317])]))[0]
    return row


def drawn(logprobs: np.ndarray, **parameters: Any) -> np.ndarray:
    """How often each token is sampled, over seeds."""
    tokens = [
        choose(logprobs, SamplingParameters(seed=s, max_tokens=1, **parameters), 17) for s in range(DRAWS)
    ]
    return np.bincount(tokens, minlength=len(logprobs))


def assert_follows(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Pearson's chi-square, rare tokens counted together; below the 99.9 % quantile (Wilson-Hilferty)."""
    assert counts[probabilities == 0].sum() == 0
    expected = probabilities * DRAWS
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    freedom = len(expected) - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert ((observed - expected) ** 2 / expected).sum() < limit


def normalised(weights: np.ndarray) -> np.ndarray:
    shares: np.ndarray = weights / weights.sum()
    return shares


def test_temperature_one_is_the_softmax(logprobs: np.ndarray) -> None:
    assert_follows(drawn(logprobs), np.exp(logprobs))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature(logprobs: np.ndarray, temperature: float) -> None:
    assert_follows(drawn(logprobs, temperature=temperature), normalised(np.exp(logprobs / temperature)))


def test_top_k(logprobs: np.ndarray) -> None:
    kept = logprobs >= np.sort(logprobs)[-7]
    assert_follows(drawn(logprobs, top_k=7), normalised(np.exp(logprobs) * kept))


def test_top_p_keeps_the_fewest_tokens_that_reach_it(logprobs: np.ndarray) -> None:
    order = np.argsort(-logprobs)
    kept = order[: int((np.cumsum(np.exp(logprobs[order])) < 0.8).sum()) + 1]
    mask = np.isin(np.arange(len(logprobs)), kept)
    assert_follows(drawn(logprobs, top_p=0.8), normalised(np.exp(logprobs) * mask))


def test_min_p(logprobs: np.ndarray) -> None:
    kept = logprobs >= logprobs.max() + np.log(0.1)
    assert_follows(drawn(logprobs, min_p=0.1), normalised(np.exp(logprobs) * kept))


def test_tiny_truncation_and_temperature_are_greedy(logprobs: np.ndarray) -> None:
    for parameters in (
        {"temperature": 0.0},
        {"temperature": 1e-300},
        {"top_p": 1e-9},
        {"top_k": 1},
        {"min_p": 1.0},
    ):
        chosen = choose(logprobs, SamplingParameters(seed=3, max_tokens=1, **parameters), 0)
        assert chosen == logprobs.argmax()


def test_forbidden_tokens_are_never_chosen(logprobs: np.ndarray) -> None:
    best = int(logprobs.argmax())
    for temperature in (0.0, 0.01):
        parameters = SamplingParameters(seed=1, max_tokens=1, temperature=temperature)
        assert choose(logprobs, parameters, 0, {best}) == np.argsort(-logprobs)[1]


def test_noise_is_uniform_and_independent_over_positions() -> None:
    numbers = np.array([uniform(5, position) for position in range(DRAWS)])
    assert ((numbers >= 0) & (numbers < 1)).all()
    counts = np.histogram(numbers, 50, (0, 1))[0]
    assert_follows(counts, np.full(50, 1 / 50))
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / DRAWS**0.5
