"""Environments of the in-memory design: one instance, in the adapter, on which every hook runs.

They keep state between their methods, so no worker makes an instance of its own: the adapter serves the queue of
their prompts and rewards, which wait while it is down.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import wraps
from typing import Any, ClassVar

from pydantic import JsonValue

from clotho.atropos.by_hand import BY_HAND, Hand
from clotho.atropos.by_row import current_row, rows_through
from clotho.atropos.env import ClothoEnv, Trajectories
from clotho.atropos.opening import rendering_of, thinking
from clotho.atropos.ported_config import HermesAgentEnvConfig, own_fields
from clotho.config import Settings, host_name
from clotho.entries.items import Item
from clotho.entries.run import RunManifest, ToolSelection
from clotho.environment import AgentResult, Environment, EnvironmentConfig
from clotho.environment.instances import Environments
from clotho.environment.tool_context import ToolContext
from clotho.inference.base import Sampling
from clotho.records.outcome import Limits
from clotho.records.stations import Station, Stations
from clotho.sandbox.base import SandboxSpec
from clotho.toolsets.base import ToolSettings
from clotho.toolsets.registry import Registry
from clotho.toolsets.resolution import resolve

PATIENCE = timedelta(days=30)
"""How long prompts and rewards wait for an adapter that is down."""


class PortedEnv(ClothoEnv):
    """What an environment of the in-memory design derives from, without the worker that serves its queue."""

    name: ClassVar[str | None] = None
    env_config_cls = HermesAgentEnvConfig
    server: Any
    hand: Hand

    def __init__(self, config: Any, server_configs: Any, slurm: bool = False, testing: bool = False) -> None:
        if "run" not in config.model_fields_set and self.name:
            config.run = self.name.lower().replace("_", "-")
        super().__init__(config, server_configs, slurm, testing)
        self._author_setup = self.setup
        self.__dict__["setup"] = self._set_up
        self.is_set_up = asyncio.Event()
        self._author_evaluate = self.evaluate
        self.__dict__["evaluate"] = self._evaluate

    # What an author overrides.

    async def setup(self) -> None:
        """Load what the other methods need."""

    async def get_next_item(self) -> Any:
        raise NotImplementedError

    def format_prompt(self, item: Any) -> Any:
        raise NotImplementedError

    async def compute_reward(self, item: Any, result: AgentResult, ctx: Any) -> Any:
        raise NotImplementedError

    async def collect_trajectory(self, item: Any) -> tuple[dict[str, Any] | None, list[Any]]:
        """The row of the rollout that its group is being put together of; for an override to change.

        Its score counts for all rows of that rollout. None withholds the group. Raises InvalidInput elsewhere.
        """
        return current_row(), []

    async def evaluate(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    # The durable path.

    async def collect_trajectories(self, item: Any) -> tuple[Trajectories, list[Any]]:
        groups, further = await super().collect_trajectories(item)
        if groups is None or type(self).collect_trajectory is PortedEnv.collect_trajectory:
            return groups, further
        return await rows_through(self.collect_trajectory, groups, item)

    def make_manifest(self, model: str) -> RunManifest:
        config = self.config
        kind = type(self)
        manifest = RunManifest(
            run=config.run,
            environment=f"{kind.__module__}:{kind.__qualname__}",
            environment_config=own_fields(config),
            model=model,
            sampling=Sampling(
                temperature=config.agent_temperature if config.temperature is None else config.temperature,
                max_tokens=config.max_token_length,
                extra_body=config.extra_body or {},
            ),
            rendering=rendering_of(config),
            seed=config.seed,
            system_prompt=config.system_prompt,
            selection=ToolSelection(
                enabled=tuple(config.enabled_toolsets) if config.enabled_toolsets is not None else None,
                disabled=tuple(config.disabled_toolsets or ()),
                distribution=config.distribution,
            ),
            tool_settings=ToolSettings(terminal_timeout=config.terminal_timeout),
            sandbox=SandboxSpec(backend=config.terminal_backend, unsafe_local=config.unsafe_local),
            limits=Limits(max_turns=config.max_agent_turns),
            group_size=config.group_size,
        )
        return thinking(manifest, config)

    def stations(self, settings: Settings) -> Stations:
        """Rewards look into the sandboxes, so all of these are on the adapter's host."""
        own = Station(queue=f"clotho-env-{self.config.run}", in_all=PATIENCE, heartbeat=timedelta(seconds=10))
        anywhere = Stations().sandbox
        here = anywhere.on(f"{anywhere.queue}-{host_name(settings)}")
        return Stations(environment=own, verification=own, sandbox=here)

    @asynccontextmanager
    async def opened(self) -> Any:
        async with super().opened():
            run = self.durable
            self.hand = Hand(run.manifest, run.endpoint, run.groups)
            self.server = HomeLoop(self.server, asyncio.get_running_loop(), self.hand)
            yield

    def _resolve_tools_for_group(self) -> tuple[list[dict[str, JsonValue]], set[str]]:
        """The schemas and names of the run's tools."""
        selection = self.durable.manifest.selection
        found = resolve(Registry.discover(), selection.enabled, selection.disabled, selection.distribution)
        return list(found.schemas), {tool.name for tool in found.tools}

    def _use_managed_server(self) -> bool:
        """Tokens are kept by the workers, whatever is sampled."""
        return False

    async def _evaluate(self, *arguments: Any, **options: Any) -> None:
        """In a thread: an author's evaluation blocks it while it looks into a workspace."""
        await asyncio.to_thread(asyncio.run, self._author_evaluate(*arguments, **options))

    async def _set_up(self) -> None:
        await self._author_setup()
        self.is_set_up.set()


class Bound(Environment):
    """The adapter's own instance, as activities know environments."""

    def __init__(self, env: PortedEnv) -> None:
        super().__init__(EnvironmentConfig())
        self._env = env

    def format_prompt(self, item: Item) -> Any:
        return item[BY_HAND] if BY_HAND in item else self._env.format_prompt(item)

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Any:
        if BY_HAND in item:
            return self._env.hand.park(item, result, ctx)
        return self._env.compute_reward(item, result, ctx)


class OneInstance(Environments):
    """Has one environment, whatever is asked for, as soon as it is set up."""

    def __init__(self, env: PortedEnv) -> None:
        super().__init__()
        self._env = env

    async def get(self, manifest: RunManifest) -> Environment:
        await self._env.is_set_up.wait()
        return Bound(self._env)


class HomeLoop:
    """A server's methods, called on the event loop that its connections belong to: rewards run beside it."""

    def __init__(self, inner: Any, home: asyncio.AbstractEventLoop, hand: Hand) -> None:
        self._inner = inner
        self._home = home
        self.hand = hand

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._at_home(found) if inspect.iscoroutinefunction(found) else found

    def _at_home(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        async def call(*arguments: Any, **options: Any) -> Any:
            work = method(*arguments, **options)
            if asyncio.get_running_loop() is self._home:
                return await work
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

        return call
