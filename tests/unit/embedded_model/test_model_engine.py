"""The engine's thread: what happens to requests when it ends, and what prompts share."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from clotho.embedded.model.engine import Engine, EngineStopped
from clotho.embedded.model.exact import Array
from clotho.embedded.model.kv_cache import KeyValueCache, PrefixStore
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension, Qwen2
from clotho.embedded.model.sampling import SamplingParameters

ENDLESS = SamplingParameters(seed=1, max_tokens=900, ignore_eos=True)


class FailingModel(Qwen2):
    """The real model until its fifth forward pass."""

    def __init__(self, model: Qwen2) -> None:
        self.model, self.architecture, self.passes = model, model.architecture, 0

    def extend(self, extensions: Sequence[Extension]) -> Array:
        self.passes += 1
        if self.passes == 5:
            raise MemoryError("no room for keys")
        return self.model.extend(extensions)


async def tokens(engine: Engine) -> list[int]:
    return [step.sampled.token async for step in engine.generate([300], ENDLESS)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_failure_ends_every_request(policy: Policy) -> None:
    engine = Engine(dataclasses.replace(policy, model=FailingModel(policy.model)))
    engine.start()
    results = await asyncio.gather(*(tokens(engine) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [EngineStopped] * 3
    assert not engine.alive
    with pytest.raises(EngineStopped):
        await tokens(engine)
    engine.stop()


async def test_stopping_ends_every_request(policy: Policy) -> None:
    engine = Engine(policy)
    engine.start()
    requests = [asyncio.ensure_future(tokens(engine)) for _ in range(3)]
    while engine.open_requests < 3:
        await asyncio.sleep(0.001)
    await asyncio.to_thread(engine.stop)
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(result) for result in results] == [EngineStopped] * 3


class CountingModel(Qwen2):
    """The real model, and how many tokens it computed."""

    def __init__(self, model: Qwen2) -> None:
        self.model, self.architecture, self.computed = model, model.architecture, 0

    def extend(self, extensions: Sequence[Extension]) -> Array:
        self.computed += sum(len(extension.tokens) for extension in extensions)
        return self.model.extend(extensions)


async def first_token(engine: Engine, prompt: list[int]) -> int:
    steps = [step async for step in engine.generate(prompt, dataclasses.replace(ENDLESS, max_tokens=1))]
    return steps[0].sampled.token


async def test_siblings_compute_a_shared_prompt_once(policy: Policy) -> None:
    model = CountingModel(policy.model)
    engine = Engine(dataclasses.replace(policy, model=model))
    engine.start()
    prompt = list(range(100, 200))
    await asyncio.gather(*(first_token(engine, prompt) for _ in range(8)))
    engine.stop()
    assert model.computed == len(prompt) + 7


async def test_prompts_that_wait_for_their_turn_do_not_crowd_out_others(policy: Policy) -> None:
    model = CountingModel(policy.model)
    engine = Engine(dataclasses.replace(policy, model=model))
    engine.start()
    prompt = list(range(100, 200))
    await first_token(engine, prompt)
    short = [[index, *range(200, 231)] for index in range(64)]
    await asyncio.gather(*(first_token(engine, each) for each in short))
    before = model.computed
    await first_token(engine, prompt)
    engine.stop()
    assert model.computed == before + 1


def test_prefix_store_keeps_what_was_used_last(policy: Policy) -> None:
    store = PrefixStore(token_budget=60)
    caches = []
    for start in (0, 100, 200):
        cache = KeyValueCache(policy.model.architecture)
        cache.reserve(30)
        cache.tokens = list(range(start, start + 30))
        caches.append(cache)
    store.add(caches[0])
    store.add(caches[1])

    def known(start: int, length: int) -> list[int]:
        cache = KeyValueCache(policy.model.architecture)
        store.fill(cache, list(range(start, start + length)))
        return cache.tokens

    assert known(0, 40) == list(range(30))
    assert known(0, 20) == list(range(19)), "a token is left to compute logits from"
    assert known(0, 5) == [], "too short to be worth a copy"
    store.add(caches[2])
    assert known(100, 40) == []
    assert known(0, 40) == list(range(30))
    assert known(200, 40) == list(range(200, 230))
