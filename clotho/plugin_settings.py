"""Settings of plugins: each is declared by its plugin, and found by its class."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import ValidationError

from clotho.frozen_model import FrozenModel
from clotho.plugin import load, plugins


class PluginSettings(FrozenModel):
    """Base of a plugin's settings; every field has a default."""

    plugin: ClassVar[str]
    """The plugin's name, under which files and variables hold them."""


Kind = TypeVar("Kind", bound=PluginSettings)


def checked_settings(given: Mapping[str, Any]) -> dict[str, PluginSettings]:
    """Validate settings by plugin name. Raises ValueError for a plugin that isn't installed, or has none."""
    checked: dict[str, PluginSettings] = {}
    for name, fields in given.items():
        kind = settings_class(name)
        try:
            checked[name] = fields if isinstance(fields, kind) else kind.model_validate(fields)
        except ValidationError as error:
            faults = (f"{name}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ValueError("; ".join(faults)) from error
    return checked


def settings_class(plugin: str) -> type[PluginSettings]:
    """The class of a plugin's settings. Raises ValueError for a plugin that isn't installed, or has none."""
    known = plugins_with_settings()
    if plugin not in known:
        raise ValueError(f"no installed plugin {plugin!r} has settings; known are {', '.join(known)}")
    kind: type[PluginSettings] = load(known[plugin])
    if not issubclass(kind, PluginSettings) or kind.plugin != plugin:
        raise ValueError(f"{known[plugin]} holds no settings of plugin {plugin!r}")
    return kind


def plugins_with_settings() -> dict[str, str]:
    """Name -> target of its settings, of every installed plugin that has some."""
    return {name: each.settings for name, each in plugins().items() if each.settings is not None}
