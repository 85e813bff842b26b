"""The thread that steps every running generation together, and its door to the event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from clotho.embedded.model.generation import Generation, Step
from clotho.embedded.model.kv_cache import PrefixStore
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import SamplingParameters, log_softmax

RUNNING_LIMIT = 64
PROMPT_TOKENS_PER_STEP = 192
"""A longer prompt is computed over several steps, so that running generations don't wait for it."""
COLD_PROMPT = 32
"""One prompt with more new tokens than this starts per step: its siblings then find its prefix computed."""
REMEMBERED_TOKENS = 8_192


class EngineStopped(Exception):
    """The engine ended, on request or by a failure, before the generation did."""


@dataclass(eq=False)
class _Request:
    generation: Generation
    prompt: list[int]
    loop: asyncio.AbstractEventLoop
    steps: asyncio.Queue[Step | EngineStopped] = field(default_factory=asyncio.Queue)
    cancelled: bool = False


class Engine:
    """Generates for any number of requests at once; what each samples doesn't depend on the others."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._prefixes = PrefixStore(REMEMBERED_TOKENS)
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._replacement: tuple[Policy, Future[None]] | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    @property
    def open_requests(self) -> int:
        with self._changed:
            return len(self._running) + len(self._waiting)

    async def replace(self, policy: Policy) -> None:
        """Switch to other weights: all tokens sampled after this returns are theirs. Raises EngineStopped."""
        replaced: Future[None] = Future()
        with self._changed:
            if not self.alive:
                raise EngineStopped
            # callers take turns: an earlier one that isn't taken up yet would never be answered
            self._replacement = policy, replaced
            self._changed.notify()
        await asyncio.wrap_future(replaced)

    async def generate(self, prompt: list[int], parameters: SamplingParameters) -> AsyncGenerator[Step]:
        """Sample until an ending; closing the generator cancels. Raises EngineStopped."""
        with self._changed:
            if not self.alive:
                raise EngineStopped
            request = _Request(
                Generation(self.policy, prompt, parameters), prompt, asyncio.get_running_loop()
            )
            self._waiting.append(request)
            self._changed.notify()
        try:
            while True:
                step = await request.steps.get()
                if isinstance(step, EngineStopped):
                    raise step
                yield step
                if step.ending is not None:
                    return
        finally:
            # only the engine's thread takes it out, between two steps: a step may be computing it now
            request.cancelled = True

    def _run(self) -> None:
        try:
            while self._admit():
                self._step()
        finally:
            with self._changed:
                self._stopping = True
                left = [*self._running, *self._waiting]
                if self._replacement is not None:
                    self._replacement[1].set_exception(EngineStopped())
            _deliver((request, EngineStopped()) for request in left)

    def _admit(self) -> bool:
        """Wait for work and take it in; False once stopping."""
        with self._changed:
            self._running = [request for request in self._running if not request.cancelled]
            self._switch()
            while not (self._running or self._waiting or self._stopping):
                self._changed.wait()
                self._switch()
            while self._waiting and len(self._running) < RUNNING_LIMIT:
                self._running.append(self._waiting.popleft())
            return not self._stopping

    def _switch(self) -> None:
        """Take other weights if there are any."""
        if self._replacement is None:
            return
        policy, replaced = self._replacement
        self.policy = policy
        # keys and values of other weights would give wrong logits
        self._prefixes = PrefixStore(REMEMBERED_TOKENS)
        for request in (*self._running, *self._waiting):
            request.generation.continue_with(policy)
        self._replacement = None
        replaced.set_result(None)

    def _step(self) -> None:
        """One forward pass over the running generations; those with nothing left to compute sample a token."""
        batch = self._batch()
        logprobs = log_softmax(self.policy.model.extend([extension for _, extension in batch]))
        delivered = []
        for (request, _), row in zip(batch, logprobs, strict=True):
            # a part of its prompt is still to be computed: this row is no prediction of the answer
            if request.generation.unseen:
                continue
            step = request.generation.advance(row)
            delivered.append((request, step))
            if step.ending is not None:
                self._running.remove(request)
        _deliver(delivered)

    def _batch(self) -> list[tuple[_Request, Extension]]:
        budget = PROMPT_TOKENS_PER_STEP
        batch = []
        cold = False
        for request in self._running:
            cache, tokens = request.generation.cache, request.generation.unseen
            if len(tokens) > 1 and not budget:
                continue
            if not cache.tokens:
                if cold:
                    continue
                self._prefixes.fill(cache, request.prompt)
                # added before it is computed: siblings of the next step find as much of it as there is by then
                self._prefixes.add(cache)
                tokens = request.generation.unseen
            cold = cold or len(tokens) > COLD_PROMPT
            if len(tokens) > 1:
                # the rest is computed in further steps; single tokens of running generations don't count
                tokens = tokens[:budget]
                budget -= len(tokens)
            batch.append((request, Extension(cache, tokens)))
        return batch


def _deliver(steps: Iterable[tuple[_Request, Step | EngineStopped]]) -> None:
    """Hand steps to their event loops, which are woken once each."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Request, Step | EngineStopped]]] = {}
    for request, step in steps:
        by_loop.setdefault(request.loop, []).append((request, step))
    for loop, delivered in by_loop.items():
        # asyncio's queues aren't safe to use from another thread
        loop.call_soon_threadsafe(_put_all, delivered)


def _put_all(delivered: list[tuple[_Request, Step | EngineStopped]]) -> None:
    for request, step in delivered:
        request.steps.put_nowait(step)
