"""Environments of the in-memory design: one instance, in the adapter, on which every hook runs.

They keep state between their methods, so no worker makes an instance of its own: the adapter serves the queue of
their prompts and rewards; these wait while it is down.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar

from pydantic import JsonValue

from clotho.config import Settings, secret
from clotho.environment import AgentResult, Environment, EnvironmentConfig
from clotho.environment.handles import EnvironmentHandle
from clotho.environment.in_process import InProcessEnvironment, SharedProcess
from clotho.environment.instances import Environments
from clotho.environment.tool_context import ToolContext
from clotho.errors import ClothoError, InvalidInput
from clotho.host import host_name
from clotho.identifiers.ids import derived_seed
from clotho.models.backend import Inference, checked_base_url
from clotho.models.endpoint import Endpoint
from clotho.models.model_http import ModelHTTP
from clotho.models.sampling import Sampling
from clotho.models.scoring import TokenScorer
from clotho.plugins.atropos.compat.config import HermesAgentEnvConfig, own_fields
from clotho.plugins.atropos.compat.hooks import (
    branch_groups_through,
    current_row,
    rows_through,
    this_branch_group,
)
from clotho.plugins.atropos.compat.manual_rollouts import MANUAL, ManualRollouts
from clotho.plugins.atropos.compat.server_handle import ServerHandle, Teacher
from clotho.plugins.atropos.env import ClothoEnv, Trajectories
from clotho.plugins.atropos.run_setup import rendering_of, with_reasoning
from clotho.rollouts.item import Item
from clotho.rollouts.outcome import Limits
from clotho.rollouts.run import RunManifest, ToolSelection
from clotho.rollouts.task_queues import ActivityQueue, TaskQueues
from clotho.sandbox.backend import SandboxSpec
from clotho.tools.registry import Registry
from clotho.tools.resolution import resolve
from clotho.tools.tool import ToolSettings

PATIENCE = timedelta(days=30)
"""Time that prompts and rewards wait for an adapter that is down."""


log = logging.getLogger("clotho.plugins.atropos")


class EvaluationDistorted(ClothoError):
    """An evaluation of manual rollouts ended, and some of its rollouts had failed without a result."""


class CompatEnv(ClothoEnv):
    """Base of environments of the in-memory design, without the worker that serves its queue."""

    name: ClassVar[str | None] = None
    env_config_cls = HermesAgentEnvConfig
    server: Any
    manual_rollouts: ManualRollouts
    _toolsets_sampled = 0
    _said_chat = False

    def __init__(self, config: Any, server_configs: Any, slurm: bool = False, testing: bool = False) -> None:
        super().__init__(config, server_configs, slurm, testing)
        # Atropos calls these names, and authors override them: the instance's own attributes go between the two
        self._author_collect = self.collect_trajectories
        self.__dict__["collect_trajectories"] = self._collect
        self._author_setup = self.setup
        self.__dict__["setup"] = self._set_up
        self.is_set_up = asyncio.Event()
        self._author_evaluate = self.evaluate
        self.__dict__["evaluate"] = self._evaluate

    # For authors to override.

    async def setup(self) -> None:
        """Load datasets and the like."""

    async def get_next_item(self) -> Any:
        raise NotImplementedError

    def format_prompt(self, item: Any) -> Any:
        raise NotImplementedError

    async def compute_reward(self, item: Any, result: AgentResult, ctx: Any) -> Any:
        raise NotImplementedError

    async def collect_trajectory(self, item: Any) -> tuple[dict[str, Any] | None, list[Any]]:
        """The rollout's row while its group is put together; for an override to change.

        Its score counts for all rows of that rollout. None withholds the group. Raises InvalidInput elsewhere.
        """
        return current_row(), []

    async def evaluate(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    # The durable path.

    async def collect_trajectories(self, item: Any) -> tuple[Trajectories, list[Any]]:
        """The scored group of an item; for an override, the branch group that it is called for."""
        return await this_branch_group(lambda: self._rolled_out(item))

    async def _collect(self, item: Any) -> tuple[Trajectories, list[Any]]:
        return await branch_groups_through(self._author_collect, item)

    async def _rolled_out(self, item: Any) -> tuple[Trajectories, list[Any]]:
        groups, further = await super().collect_trajectories(item)
        if groups is None or type(self).collect_trajectory is CompatEnv.collect_trajectory:
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
            tool_settings=config.build_budget_config().applied_to(
                ToolSettings(terminal_timeout=config.terminal_timeout)
            ),
            sandbox=SandboxSpec(
                backend=config.sandbox_backend,
                writable_roots=tuple(config.writable_roots),
                aliases=config.path_aliases,
            ),
            limits=Limits(max_turns=config.max_agent_turns),
            group_size=config.group_size,
        )
        return with_reasoning(manifest, config)

    def task_queues(self, settings: Settings) -> TaskQueues:
        """Rewards look into the sandboxes, so all of these are on the adapter's host."""
        own = ActivityQueue(
            queue=f"clotho-env-{self.config.run}",
            schedule_to_close_timeout=PATIENCE,
            heartbeat_timeout=timedelta(seconds=10),
        )
        anywhere = TaskQueues().sandbox
        here = anywhere.with_queue(f"{anywhere.queue}-{host_name(settings)}")
        return TaskQueues(environment=own, verification=own, sandbox=here)

    @asynccontextmanager
    async def opened(self) -> Any:
        asked, used = self.config.terminal_backend, self.config.sandbox_backend.name
        if asked != used:
            log.warning(
                "terminal_backend %s isn't configured here: commands run in %s sandboxes", asked, used
            )
        async with super().opened(), self._teacher() as teacher:
            run, home = self.adapter_run, asyncio.get_running_loop()
            self.manual_rollouts = ManualRollouts(run.manifest, run.endpoint, run.groups)
            self.server = ServerHandle(self.server, home, self.manual_rollouts, teacher, self.tokenizer)
            self._say_what_is_not_offered()
            yield

    @asynccontextmanager
    async def _teacher(self) -> AsyncIterator[Teacher]:
        """The scorer of tokens for the environment. If no server can score, the adapter ends with the reason."""
        body = asyncio.current_task()
        assert body is not None
        refusals: list[ClothoError] = []

        def give_up(error: ClothoError) -> None:
            refusals.append(error)
            body.cancel()

        servers = [self._connection(server) for server in self.adapter_run.endpoint.servers]
        scorers = [TokenScorer(server, self.adapter_run.endpoint.inference) for server in servers]
        chat = self.adapter_run.endpoint.inference is Inference.CHAT
        try:
            yield Teacher(self.adapter_run.manifest.model, [] if chat else scorers, give_up)
        except asyncio.CancelledError:
            if not refusals:
                raise
            body.uncancel()
            raise refusals[0] from None
        finally:
            for server in servers:
                await server.aclose()

    def _connection(self, server: Endpoint) -> ModelHTTP:
        """A connection with the key from the command line, or from the variable that workers read."""
        given = self.secrets.reveal(self.server_configs)
        keys = {
            checked_base_url(each.base_url): each.api_key
            for each in (given if isinstance(given, list) else [given])
        }
        named = secret(server.api_key_variable) if server.api_key_variable is not None else None
        sizes = self.adapter_run.connections.settings.worker
        return ModelHTTP(
            server.base_url,
            named or keys.get(server.base_url),
            sizes.model_call_timeout_seconds,
            first_token_seconds=sizes.model_first_token_timeout_seconds,
        )

    def _say_what_is_not_offered(self) -> None:
        manifest = self.adapter_run.manifest
        selection = manifest.selection
        found = resolve(
            Registry.discover(),
            selection.enabled,
            selection.disabled,
            selection.distribution,
            settings=manifest.tool_settings,
        )
        for tool, why in found.unavailable.items():
            log.warning("%s asks for the tool %s, which isn't offered: %s", type(self).__name__, tool, why)

    def _resolve_tools_for_group(self) -> tuple[list[dict[str, JsonValue]], set[str]]:
        """Schemas and names of tools for one task; of a distribution, another sample each time."""
        manifest = self.adapter_run.manifest
        selection = manifest.selection
        seed = derived_seed(manifest.seed, manifest.run, "toolsets", self._toolsets_sampled)
        self._toolsets_sampled += 1
        found = resolve(
            Registry.discover(),
            selection.enabled,
            selection.disabled,
            selection.distribution,
            seed,
            settings=manifest.tool_settings,
        )
        return list(found.schemas), {tool.name for tool in found.tools}

    def _use_managed_server(self) -> bool:
        """Whether rollouts have tokens, and `server.get_logprobs` scores them: not where turns are chat."""
        if self.adapter_run.endpoint.inference is not Inference.CHAT:
            return True
        if not self._said_chat:
            self._said_chat = True
            log.warning(
                "%s asks for tokens, and --env.inference chat has none: what it does with them is left out",
                type(self).__name__,
            )
        return False

    async def _evaluate(self, *arguments: Any, **options: Any) -> None:
        """Run the author's evaluation in a thread, which it blocks while it looks into a workspace.

        Raises EvaluationDistorted where its figures count failures of the infrastructure as a policy's.
        """
        self.manual_rollouts.take_failed()
        await asyncio.to_thread(asyncio.run, self._author_evaluate(*arguments, **options))
        if failed := self.manual_rollouts.take_failed():
            reason = next(iter(failed.values()))
            message = (
                f"{len(failed)} of the evaluation's rollouts failed, which its figures may count as the policy's: "
                f"{reason}"
            )
            log.error("%s", message)
            raise EvaluationDistorted(message)

    async def _set_up(self) -> None:
        await self._author_setup()
        self.is_set_up.set()


class EnvironmentAdapter(Environment):
    """The adapter's instance behind the interface that activities call."""

    def __init__(self, env: CompatEnv) -> None:
        config = env.config
        super().__init__(
            EnvironmentConfig(
                verifier_cwd=config.verifier_cwd,
                trust_workspace=config.trust_workspace,
                keep_services=config.keep_services,
            )
        )
        self._env = env

    def format_prompt(self, item: Item) -> Any:
        return item[MANUAL] if MANUAL in item else self._env.format_prompt(item)

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Any:
        if MANUAL in item:
            return self._env.manual_rollouts.hand_over(item, result, ctx)
        return self._env.compute_reward(item, result, ctx)


class SingletonEnvironments(Environments):
    """Returns the adapter's instance for every manifest, once it is set up."""

    def __init__(self, env: CompatEnv) -> None:
        self._env = env
        self._handle = InProcessEnvironment(EnvironmentAdapter(env), SharedProcess())

    async def get(self, manifest: RunManifest) -> EnvironmentHandle:
        await self._env.is_set_up.wait()
        return self._handle

    @asynccontextmanager
    async def enumeration(self, manifest: RunManifest) -> AsyncIterator[EnvironmentHandle]:
        raise InvalidInput("the adapter claims the items of an environment of the in-memory design")
        yield
