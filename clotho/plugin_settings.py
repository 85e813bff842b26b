"""Settings that plugins declare: for the processes of a machine, and for runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from pydantic import JsonValue, ValidationError, create_model

from clotho.errors import HostUnavailable, InvalidInput
from clotho.frozen_model import FrozenModel, field_errors
from clotho.plugin import load, plugins


class PluginSettings(FrozenModel):
    """Base of a plugin's settings; every field has a default."""

    plugin: ClassVar[str]
    """The plugin's name, under which files and variables hold them."""


Kind = TypeVar("Kind", bound=PluginSettings)


@cache
def settings_sections() -> type[FrozenModel]:
    """A model with a field for each plugin that has settings. Raises InvalidInput for a target that holds none."""
    kinds: dict[str, type[PluginSettings]] = {}
    for name, plugin in plugins().items():
        if plugin.settings is not None:
            kinds[name] = load(plugin.settings)
            # by the name that `Settings.of` looks up: another one would never be read
            if not issubclass(kinds[name], PluginSettings) or kinds[name].plugin != name:
                raise InvalidInput(f"plugin {name!r}: {plugin.settings} holds no settings of it")
    sections = {name: (kind, kind()) for name, kind in kinds.items()}
    model: type[FrozenModel] = create_model("PluginSections", __base__=FrozenModel, **sections)  # type: ignore[call-overload]
    return model


RunSections = dict[str, dict[str, JsonValue]]
"""Settings that a run has for plugins: a plugin's name -> its fields."""


@dataclass(frozen=True)
class BroughtToolset:
    """A toolset that a run's settings for a plugin bring; its tools are known when a group begins."""

    name: str
    tools: str
    """A pattern of its tools' names, for readers."""
    runs: str
    """The place where its tools run, for readers."""
    missing: str | None = None
    """What this installation lacks for it, with the command that installs it."""


class RunPluginSettings(FrozenModel):
    """Base of the settings that a run has for a plugin: they are part of the run's manifest."""

    plugin: ClassVar[str]
    """The plugin's name, under which manifests and files hold them."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Environment variables of the workers whose values no tool result may show."""
        return ()

    @property
    def toolsets(self) -> tuple[BroughtToolset, ...]:
        """Toolsets of the plugin's tool source."""
        return ()

    @property
    def on_hosts(self) -> frozenset[str]:
        """The programs that run on hosts with the workers' rights, each as a text that tells it from others."""
        return frozenset()


RunKind = TypeVar("RunKind", bound=RunPluginSettings)


def run_settings_of(name: str, fields: Mapping[str, JsonValue]) -> RunPluginSettings:
    """Check what a run sets for the plugin `name`. Raises InvalidInput that names the plugin or the wrong field."""
    plugin = plugins().get(name)
    if plugin is None or plugin.run_settings is None:
        known = ", ".join(each for each, one in plugins().items() if one.run_settings is not None)
        missing = "is not installed here" if plugin is None else "has no settings of a run"
        raise InvalidInput(f"plugins.{name}: the plugin {missing}; those that have some: {known}")
    try:
        kind: type[RunPluginSettings] = load(plugin.run_settings)
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InvalidInput(f"plugins.{name}: {field_errors(error)}") from error


def run_settings_here(sections: RunSections) -> list[RunPluginSettings]:
    """Read what a run sets for its plugins, checked at its start.

    Raises HostUnavailable for a plugin that isn't installed on this host, or not in a version that takes them.
    """
    if missing := sorted(sections.keys() - plugins().keys()):
        # an outage, not the run's fault: the step is retried until the package is there
        raise HostUnavailable(
            f"the plugin {missing[0]} of this run isn't installed on this host: install its package there"
        )
    return [_as_read_here(name, partial(run_settings_of, name, fields)) for name, fields in sections.items()]


def of_kind_here(kind: type[RunKind], fields: Mapping[str, JsonValue]) -> RunKind:
    """Like `run_settings_here`, for the one plugin whose settings are of this class."""
    return _as_read_here(kind.plugin, lambda: kind.model_validate(fields))


def _as_read_here(name: str, read: Callable[[], RunKind]) -> RunKind:
    try:
        return read()
    except (InvalidInput, ValidationError) as error:
        why = field_errors(error) if isinstance(error, ValidationError) else str(error)
        raise HostUnavailable(
            f"this host has another version of the plugin {name} than the run was started with: {why}"
        ) from error


def with_run_settings(sections: RunSections, asked: Mapping[str, JsonValue]) -> RunSections:
    """`sections` with the fields of `asked` in place of theirs; a plugin that is null has none any more.

    Each section is whole: a default that changes later changes no run. Raises as `run_settings_of`.
    """
    changed = dict(sections)
    for name, fields in asked.items():
        if fields is None:
            changed.pop(name, None)
            continue
        if not isinstance(fields, dict):
            raise InvalidInput(f'plugins.{name}: give its fields as an object, such as {{"field": value}}')
        whole = run_settings_of(name, {**changed.get(name, {}), **fields})
        changed[name] = whole.model_dump(mode="json")
    return changed


def sections_of(*settings: RunPluginSettings) -> dict[str, Any]:
    """Settings of plugins as an environment's configuration names them; only the fields that are set."""
    return {each.plugin: each.model_dump(mode="json", exclude_unset=True) for each in settings}
