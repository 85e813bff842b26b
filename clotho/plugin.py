"""Plugins: what a package adds to Clotho, in one object that an entry point of the group `clotho.plugins` names.

The core asks here for what is installed and imports no plugin by its name. What a plugin offers is written as
`module:attribute`, and is imported when it is used: `clotho --help` pays for the declarations alone.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from clotho.errors import InvalidInput

GROUP = "clotho.plugins"
UNKNOWN_OPTIONS_PASS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Click settings of a command that hands options which it doesn't know to its program."""


@dataclass(frozen=True)
class Command:
    """A command of `clotho`: a function, or a Typer application with commands of its own."""

    name: str
    target: str
    """The function or application, as `module:attribute`."""
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of its Click context."""


@dataclass(frozen=True)
class SandboxKind:
    """A kind of sandbox that runs ask for by name, with settings of their own."""

    config: str
    """Target of its `BackendConfig` (`clotho/sandbox/config.py`)."""
    open: str
    """Target of a function `(settings, folder) -> backend` for a worker's sandboxes in that folder of its host."""
    beside: bool = True
    """Whether each worker has it beside the backend that its settings name; else only where they name it."""


@dataclass(frozen=True)
class Exporter:
    """A format of `clotho export` that is written as a whole, to a file or a folder."""

    target: str
    """A function `async (journal, manifest, figures, output, exclude) -> rollouts written`."""
    summary: str


@dataclass(frozen=True)
class RunLog:
    """An option of `clotho run` that logs the run somewhere while it is followed."""

    target: str
    """A function `(value, journal, manifest)` that opens a FollowedLog (`clotho/cli/follow.py`), to be entered."""
    summary: str
    metavar: str


@dataclass(frozen=True)
class Plugin:
    """What a package offers; each `target` is `module:attribute`."""

    name: str
    commands: tuple[Command, ...] = ()
    tools: tuple[str, ...] = ()
    """Targets of concrete Tool classes."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """Scheme of a store's location -> target of a function `(location, settings) -> Store`."""
    sandboxes: Mapping[str, SandboxKind] = field(default_factory=dict)
    """Kinds of sandbox by the names that `--sandbox` takes."""
    exporters: Mapping[str, Exporter] = field(default_factory=dict)
    """Exporters by the names that `--format` takes."""
    agents: Mapping[str, str] = field(default_factory=dict)
    """Programs with a loop of their own, by the names that `--agent` takes -> target of an AgentProgram
    (`clotho/rollouts/agent_program.py`)."""
    environments: Mapping[str, str] = field(default_factory=dict)
    """Scheme of an environment's name, such as `tasks:PATH` -> target of a function `(rest) -> (name, config)`."""
    notice: str | None = None
    """Target of a function `(environment, config) -> sentence or None` for what `clotho run` says at a start.

    It runs in a thread, on the machine where the run is started."""
    released: str | None = None
    """Target of a function `async (scope, rollout)` that ends what a host's workers keep for a rollout.

    It is called when the rollout gives its sandbox back, once at least, and raises nothing."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """Hooks of runs' lives: name -> target of a function `async (Notice, Settings)`, called on a worker for tools.

    It is told, once at least, of each pause that a run made itself and of each end, and does nothing where the
    settings don't ask for it. It raises Unavailable for what may pass, InvalidInput for what has to be mended."""
    run_logs: Mapping[str, RunLog] = field(default_factory=dict)
    """Options of `clotho run` by name, each of which logs the run while it is followed."""
    doctor: Mapping[str, str] = field(default_factory=dict)
    """Section of `clotho doctor` -> target of a function `async (Examination) -> list of Finding`."""
    status: str | None = None
    """Target of a function `async (client, runs) -> lines` for what `clotho status` says that needs attention."""
    run_settings: str | None = None
    """Target of the RunPluginSettings that a run has for it: `plugins: {NAME: …}` of its settings."""
    tool_source: str | None = None
    """Target of the ToolSource (`clotho/tools/source.py`) of tools that a run's settings bring."""
    toolset_prefix: str | None = None
    """The first characters of the names of such tools' toolsets, by which a run may choose them."""
    judge: str | None = None
    """Target of a function `async (Question) -> text or None` that answers what verifiers ask a model."""
    settings: str | None = None
    """Target of the PluginSettings that a machine's processes have for it: `plugins: {NAME: …}` of clotho.yaml."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Module that the plugin imports -> what `pip install` calls its package: `boto3` -> `clotho-rollouts[s3]`."""


def load(target: str) -> Any:
    """The attribute that `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_with_needs(plugin: Plugin, target: str) -> Any:
    """Load a plugin's `target`. Raises InvalidInput with the `pip install` line for a missing package."""
    for module, package in plugin.needs.items():
        # looked for, not imported: the target imports what it needs itself
        if find_spec(module) is None:
            raise InvalidInput(f"{plugin.name} needs what this brings: pip install '{package}'")
    return load(target)


@cache
def plugins() -> Mapping[str, Plugin]:
    """The installed plugins by name. Raises InvalidInput for an entry point without one, or two of one name."""
    found: dict[str, Plugin] = {}
    # sorted: entry points come in the order of the folders on the path, which differs between machines
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        plugin = _loaded(point)
        if plugin.name in found:
            raise InvalidInput(
                f"two installed packages offer a plugin {plugin.name!r}: uninstall one of them"
            )
        found[plugin.name] = plugin
    return MappingProxyType(found)


def _loaded(point: EntryPoint) -> Plugin:
    try:
        plugin = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"plugin {point.name!r}: {point.value} can't be imported: {error}") from error
    if not isinstance(plugin, Plugin):
        raise InvalidInput(f"plugin {point.name!r}: {point.value} is no clotho.plugin.Plugin")
    return plugin
