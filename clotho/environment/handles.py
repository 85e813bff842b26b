"""An environment as workers call it, wherever its author's code runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from pydantic import JsonValue

from clotho.environment.environment import AgentResult, EnvironmentConfig, Reward, Solution
from clotho.environment.evaluated import EvaluatedItem
from clotho.environment.tool_context import ContextCalls
from clotho.errors import EnvironmentFailed
from clotho.rollouts.item import Item
from clotho.sandbox.item import ItemSandbox
from clotho.tools.tool import Arguments, Tool, ToolOutcome


class AuthorProcessEnded(EnvironmentFailed):
    """The process of an author's code ended by that code's doing: it crashed, exited, or took too much memory."""


@dataclass(frozen=True)
class Opening:
    """The beginning of an item's rollouts."""

    prompt: str | list[dict[str, Any]]
    """The user's message, or whole messages."""
    files: Mapping[str, bytes]
    """Files put into the sandbox before the agent starts."""
    sandbox: ItemSandbox
    seconds: float | None
    """Seconds of model and tool calls after which the rollouts end; None: the run's limit alone."""


@dataclass
class WorkClock:
    """The seconds that an author's code may take; waits for infrastructure don't count."""

    limit: float | None
    """None: no limit."""
    _started: float = field(default_factory=monotonic)
    _waited: float = 0.0
    _waits: int = 0
    _since: float = 0.0

    @property
    def spent(self) -> float:
        waiting = monotonic() - self._since if self._waits else 0.0
        return monotonic() - self._started - self._waited - waiting

    @property
    def left(self) -> float | None:
        return None if self.limit is None else self.limit - self.spent

    def extend(self, seconds: float) -> None:
        """Raise the limit to `seconds`, unless it is larger or there is none."""
        if self.limit is not None:
            self.limit = max(self.limit, seconds)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        # waits of calls side by side overlap: their time is taken off once
        if not self._waits:
            self._since = monotonic()
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._waited += monotonic() - self._since


current_clock: ContextVar[WorkClock | None] = ContextVar("work clock", default=None)
"""The clock of the author's call that the running task serves."""


@contextmanager
def infrastructure_wait() -> Iterator[None]:
    """Stop the clock of the author's code that asked, while the body runs."""
    clock = current_clock.get()
    if clock is None:
        yield
        return
    with clock.waiting():
        yield


class FunctionCalls(ContextCalls, Protocol):
    """The calls that an author's tool makes of the worker."""

    async def claim(self) -> bool:
        """Mark the tool's call as begun, for good; False where an earlier attempt has done so."""


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function that an author declared with `@tool`."""

    name: str
    arguments: Arguments
    state: JsonValue
    """The state that earlier calls of its class left; None: none yet, or it has no class."""
    seconds: float


class EnvironmentHandle(Protocol):
    """The environment of a run.

    Every method raises EnvironmentFailed for what the author's code raises, Clotho's own errors as they are, and
    HostUnavailable where this machine failed it.
    """

    fingerprint: str
    """Names the code that it runs; empty where that isn't kept."""
    config: EnvironmentConfig
    evaluates: bool
    """Whether it has metrics of its own."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that its modules declare."""

    async def opening(self, item: Item) -> Opening: ...

    async def sandbox(self, item: Item) -> ItemSandbox: ...

    async def hidden_files(self, item: Item) -> Mapping[str, bytes]: ...

    async def grading_sandbox(self, item: Item) -> ItemSandbox | None: ...

    async def solution(self, item: Item) -> Solution: ...

    async def same_item(self, recorded: Item, item: Item) -> bool: ...

    async def compute_reward(
        self, item: Item, result: AgentResult, calls: ContextCalls, seconds: float
    ) -> Reward:
        """`seconds` bound the author's code and its commands, unless the item asks for more."""

    async def blames_agent(self, item: Item, calls: ContextCalls, seconds: float) -> bool:
        """Whether a verifier that failed twice fails by the agent's doing."""

    async def evaluate(self, items: Sequence[EvaluatedItem]) -> dict[str, float]: ...

    async def next_items(self, number: int) -> tuple[Item, ...]:
        """The next `number` items of its dataset, fewer where that ends."""

    async def call_function(self, call: FunctionCall, calls: FunctionCalls) -> ToolOutcome: ...
