"""Resolution of a run's toolsets into the tools that its rollouts are offered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.plugin import plugins
from clotho.tools import catalogue, distributions
from clotho.tools.registry import Registry
from clotho.tools.tool import USUAL, Tool, ToolSettings


@dataclass(frozen=True)
class Resolution:
    """The tools on offer, and those that were asked for and can't be offered."""

    toolsets: tuple[str, ...]
    """The leaf toolsets of which at least one tool is on offer, sorted."""
    tools: tuple[Tool, ...]
    """Sorted by name."""
    unavailable: Mapping[str, str]
    """Tool -> why it was dropped."""

    @property
    def schemas(self) -> tuple[dict[str, JsonValue], ...]:
        return tuple(tool.schema() for tool in self.tools)


def resolve(
    registry: Registry,
    enabled: Sequence[str] | None = None,
    disabled: Sequence[str] | None = None,
    distribution: distributions.Distribution | None = None,
    seed: int = 0,
    only: Sequence[str] | None = None,
    settings: ToolSettings = USUAL,
) -> Resolution:
    """Resolve toolset names to tools.

    `enabled=None` without a distribution means every tool that this installation has, `[]` means none.
    `disabled` is taken off last; of what is left, `only` names the tools to offer. `seed` fixes the sample of
    `distribution`; toolsets that `settings`, the run's, bring are added unless it names them. A sample that leaves
    no tool is drawn again. Raises InvalidInput for unknown names, where both `enabled` and
    `distribution` are given, and where no sample of one could leave a tool.
    """
    members = toolset_members(registry, settings)
    if settings.delegation is not None:
        # only for what it raises: a wrong name is told before a task is delegated
        _expand(settings.delegation.tools or (), members)

    def offered(names: Iterable[str] | None) -> Resolution:
        return _offered(registry, members, names, disabled or (), only, settings)

    if distribution is None:
        return offered(enabled)
    if enabled is not None:
        raise InvalidInput("enabled_toolsets and distribution exclude each other: give one of them")
    by_toolset = distributions.probabilities(distribution)
    always = {toolset.name for toolset in settings.toolsets} - by_toolset.keys()
    useful = {name for name in by_toolset if offered([name]).tools}
    # a sample may be empty where the run's own toolsets leave a tool
    if offered(always).tools:
        return offered([*next(distributions.draws(by_toolset, seed)), *always])
    if not useful:
        missing = offered(by_toolset).unavailable
        why = "; ".join(f"{tool}: {reason}" for tool, reason in missing.items())
        raise InvalidInput(
            f"no sample of the distribution leaves a tool: {why or 'all of its tools are disabled'}"
        )
    # it ends: no probability is below 0.01
    drawn = next(sample for sample in distributions.draws(by_toolset, seed) if sample & useful)
    return offered([*drawn, *always])


def check_names(
    registry: Registry,
    enabled: Sequence[str] | None,
    disabled: Sequence[str],
    distribution: distributions.Distribution | None,
) -> None:
    """Raise InvalidInput for unknown names of toolsets and distributions, and where two exclude each other.

    Names of toolsets that a run's settings bring pass: these are known when a group begins.
    """
    if enabled is not None and distribution is not None:
        raise InvalidInput("enabled_toolsets and distribution exclude each other: give one of them")
    drawn = distributions.probabilities(distribution) if distribution is not None else ()
    brought = tuple(plugin.toolset_prefix for plugin in plugins().values() if plugin.toolset_prefix)
    names = [name for name in (*(enabled or ()), *disabled, *drawn) if not name.startswith(brought)]
    _expand(names, toolset_members(registry))


def _offered(
    registry: Registry,
    members: Mapping[str, frozenset[str]],
    enabled: Iterable[str] | None,
    disabled: Iterable[str],
    only: Sequence[str] | None,
    settings: ToolSettings,
) -> Resolution:
    leaves = _expand(enabled, members) if enabled is not None else frozenset(members)
    # without names, a catalogued tool that isn't installed isn't reported: nobody asked for it
    wanted = _tools(leaves, members) if enabled is not None else frozenset(registry.names)
    wanted -= _tools(_expand(disabled, members), members)
    if only is not None:
        known = frozenset().union(*members.values())
        if unknown := sorted(frozenset(only) - known):
            raise InvalidInput(f"unknown tools {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        wanted &= frozenset(only)
    unavailable = {
        name: reason for name in sorted(wanted) if (reason := _missing(registry.get(name), name, settings))
    }
    tools = tuple(tool for tool in registry if tool.name in wanted and tool.name not in unavailable)
    offered = {tool.name for tool in tools}
    return Resolution(
        toolsets=tuple(sorted(leaf for leaf in leaves if members[leaf] & offered)),
        tools=tools,
        unavailable=unavailable,
    )


def toolset_members(registry: Registry, settings: ToolSettings = USUAL) -> dict[str, frozenset[str]]:
    """The tools of every leaf toolset: catalogued, brought by a tool, or by the run's settings."""
    members = {name: frozenset(tools) for name, tools in catalogue.LEAVES.items()}
    members |= {toolset.name: frozenset() for toolset in settings.toolsets}
    for tool in registry:
        members[tool.toolset] = members.get(tool.toolset, frozenset()) | {tool.name}
    return members


def _expand(names: Iterable[str], members: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The leaves that `names` stand for."""
    leaves: set[str] = set()
    for name in names:
        parts = catalogue.COMPOSITES.get(name, (name,))
        if not members.keys() >= set(parts):
            known = ", ".join(sorted({*members, *catalogue.COMPOSITES}))
            raise InvalidInput(f"unknown toolset {name!r}; known are {known}")
        leaves.update(parts)
    return frozenset(leaves)


def _tools(leaves: Iterable[str], members: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(members[leaf] for leaf in leaves))


def _missing(tool: Tool | None, name: str, settings: ToolSettings) -> str | None:
    return catalogue.reason_missing(name) if tool is None else tool.missing(settings)
