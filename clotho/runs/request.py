"""The request for a run: its environment's settings, overridden by its user's."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import JsonValue, ValidationError

from clotho.environment import EnvironmentConfig
from clotho.environment.loading import make_environment
from clotho.environment.tools import registry_of
from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import checked_run_name
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.models.sampling import Sampling
from clotho.plugin_settings import with_run_settings
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.group import RepairBounds
from clotho.rollouts.item import Item
from clotho.rollouts.outcome import Limits
from clotho.rollouts.run import RunManifest, ToolSelection
from clotho.rollouts.task_queues import TaskQueues
from clotho.run_settings import RunSettings
from clotho.sandbox.backend import SandboxSpec
from clotho.tools.registry import Registry
from clotho.tools.resolution import check_names
from clotho.tools.tool import ToolSettings

NOTHING = RunSettings()
MODEL = Agent()
LONGEST_SOLUTION_SECONDS = 86_400.0
SHELL = ToolSelection(enabled=("terminal",))
"""The tools that run a solution."""
NO_TOOLS = ToolSelection(enabled=())


class RunRequest(FrozenModel):
    manifest: RunManifest
    endpoint: Endpoint | None
    """The model server; None where no model acts."""
    groups: int
    max_open_groups: int
    items: tuple[Item, ...] | None = None
    """Items of the run; None: the environment's own."""
    task_queues: TaskQueues = TaskQueues()
    repairs: RepairBounds = RepairBounds()
    stop_after_failures: int = 8
    """Rollouts that fail in a row for the same reason before the run pauses itself."""
    priority: int | None = None
    """Order in the queues that several runs share: 1 comes first, 5 last; None: 3."""


def run_manifest(
    environment: str,
    run: str,
    model_name: str,
    *,
    agent: Agent = MODEL,
    overrides: Mapping[str, JsonValue] = MappingProxyType({}),
    temperature: float | None = None,
    max_tokens: int | None = None,
    extra_body: dict[str, JsonValue] | None = None,
    standard_sampling: bool = False,
    rendering: Rendering | None = None,
    seed: int = 0,
    send_seeds: bool = True,
    group_size: int = 4,
    settings: RunSettings = NOTHING,
) -> RunManifest:
    """The environment's settings with the user's overrides; token-exact with a `rendering`.

    Raises InvalidInput for unknown names, and for sampling parameters left to the server in token-exact mode.
    """
    asked = make_environment(environment, overrides).config
    if standard_sampling and rendering is not None:
        raise InvalidInput(
            "token-exact inference sends all sampling parameters: leave --standard-sampling out"
        )
    if not send_seeds and rendering is not None:
        raise InvalidInput("token-exact inference resumes turns by their seeds: leave --no-seeds out")
    manifest = RunManifest(
        run=checked_run_name(run),
        environment=environment,
        environment_config=asked.model_dump(mode="json"),
        agent=agent,
        model=model_name,
        sampling=_sampling(asked, temperature, max_tokens, extra_body, standard_sampling),
        rendering=rendering,
        seed=seed,
        system_prompt=asked.system_prompt,
        selection=_selection(asked, environment, agent),
        tool_settings=tool_settings(asked, agent),
        sandbox=SandboxSpec(writable_roots=asked.writable_roots, aliases=asked.path_aliases),
        limits=Limits(
            max_turns=asked.max_agent_turns,
            max_sampled_tokens=asked.max_sampled_tokens,
            max_active_seconds=asked.max_active_seconds,
            max_calls_per_turn=asked.max_calls_per_turn,
        ),
        group_size=group_size,
        send_seeds=send_seeds,
    ).with_settings(settings)
    return manifest.named(model_name) if model_name else manifest


def _sampling(
    asked: EnvironmentConfig,
    temperature: float | None,
    max_tokens: int | None,
    extra_body: dict[str, JsonValue] | None,
    standard: bool,
) -> Sampling:
    try:
        sampling = Sampling(
            temperature=asked.agent_temperature if temperature is None else temperature,
            max_tokens=max_tokens or asked.max_token_length,
            extra_body=asked.extra_body if extra_body is None else extra_body,
        )
    except ValidationError as error:
        raise InvalidInput("; ".join(fault["msg"] for fault in error.errors())) from error
    # None: the request leaves the field out
    left_out = {"top_k": None, "min_p": None, "repetition_penalty": None} if standard else {}
    return sampling.model_copy(update=left_out)


def configured_tools(asked: EnvironmentConfig) -> ToolSettings:
    """The tool settings that an environment's configuration names."""
    return ToolSettings(
        terminal_timeout=asked.terminal_timeout,
        delegation=asked.delegation,
        plugins=with_run_settings({}, asked.plugins),
    )


def tool_settings(asked: EnvironmentConfig, agent: Agent) -> ToolSettings:
    settings = configured_tools(asked)
    if not agent.kind.runs_solution:
        return settings
    return settings.model_copy(update={"longest_command_seconds": LONGEST_SOLUTION_SECONDS})


def _selection(asked: EnvironmentConfig, environment: str, agent: Agent) -> ToolSelection:
    """The tools for an agent: a program brings its own."""
    if agent.kind is AgentKind.PROGRAM:
        return NO_TOOLS
    return SHELL if agent.kind.runs_solution else tool_selection(asked, registry_of(environment))


def tool_selection(asked: EnvironmentConfig, registry: Registry) -> ToolSelection:
    """The environment's toolsets; raises InvalidInput for names that `registry` doesn't know."""
    selection = ToolSelection(
        enabled=asked.enabled_toolsets, disabled=asked.disabled_toolsets, distribution=asked.distribution
    )
    check_names(registry, selection.enabled, selection.disabled, selection.distribution)
    return selection


def with_checked_tools(manifest: RunManifest) -> RunManifest:
    """The manifest; raises InvalidInput for an unknown distribution, or unknown toolsets in one."""
    selection = manifest.selection
    if selection.distribution is not None:
        registry = registry_of(manifest.environment)
        check_names(registry, selection.enabled, selection.disabled, selection.distribution)
    return manifest
