"""The engine's thread: what happens to requests when it ends, and what prompts share."""

import asyncio
import dataclasses
import threading
from collections.abc import Sequence

import pytest

from clotho.embedded.model.engine import Engine, EngineStopped
from clotho.embedded.model.exact import Array
from clotho.embedded.model.kv_cache import KeyValueCache, PrefixStore
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension, Qwen2
from clotho.embedded.model.sampling import SamplingParameters
from tests.support import PATIENCE_SECONDS, eventually

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


class HeldModel(Qwen2):
    """The real model, which makes its `held` pass, counted from 1, once it may; how many tokens each computed."""

    def __init__(self, model: Qwen2, held: int) -> None:
        self.model, self.architecture, self.held = model, model.architecture, held
        self.goes_on = threading.Event()
        self.passes: list[list[int]] = []

    def extend(self, extensions: Sequence[Extension]) -> Array:
        self.passes.append([len(extension.tokens) for extension in extensions])
        assert len(self.passes) != self.held or self.goes_on.wait(PATIENCE_SECONDS)
        return self.model.extend(extensions)


async def until_open(engine: Engine, requests: int) -> None:
    async def are_open() -> bool:
        return engine.open_requests == requests

    await eventually(are_open, f"{requests} open requests")


async def test_stopping_ends_every_request(policy: Policy) -> None:
    model = HeldModel(policy.model, held=1)
    engine = Engine(dataclasses.replace(policy, model=model))
    engine.start()
    requests = [asyncio.ensure_future(tokens(engine)) for _ in range(3)]
    await until_open(engine, 3)
    stopping = asyncio.create_task(asyncio.to_thread(engine.stop))

    async def is_asked_to_stop() -> bool:
        return not engine.alive

    await eventually(is_asked_to_stop, "an engine that stops")
    model.goes_on.set()
    await stopping
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


async def test_a_long_prompt_does_not_hold_up_others(policy: Policy) -> None:
    """A thousand-token prompt joins a running generation, whose tokens keep coming."""
    model = HeldModel(policy.model, held=5)
    engine = Engine(dataclasses.replace(policy, model=model))
    engine.start()
    running = asyncio.ensure_future(tokens(engine))

    async def holds() -> bool:
        return len(model.passes) == model.held

    await eventually(holds, "the held pass")
    joining = asyncio.ensure_future(first_token(engine, [index % 500 + 20 for index in range(1000)]))
    await until_open(engine, 2)
    model.goes_on.set()
    await joining
    await asyncio.to_thread(engine.stop)
    await asyncio.gather(running, return_exceptions=True)
    assert model.passes[:5] == [[1]] * 5
    parts = model.passes[5:11]
    assert [own for own, _ in parts] == [1] * 6
    assert [part for _, part in parts] == [192] * 5 + [40]


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
