"""How likely the tokens of a given sequence are, and what else might stand in their places."""

from itertools import pairwise

from clotho.embedded.model.generation import Likelihood, likelihoods
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import log_softmax


def score_prompt(policy: Policy, prompt: list[int], count: int) -> list[tuple[Likelihood, ...]]:
    """For each position its own token and the `count` most likely ones; for the first, nothing. Blocks."""
    cache = KeyValueCache(policy.model.architecture)
    rows: list[tuple[Likelihood, ...]] = [()]
    for token, following in pairwise(prompt):
        logprobs = log_softmax(policy.model.extend([Extension(cache, [token])]))[0]
        rows.append(likelihoods(logprobs, following, count))
    return rows
