"""Settings that plugins declare for the processes of a machine."""

from functools import cache
from typing import ClassVar, TypeVar

from pydantic import create_model

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
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
            if not issubclass(kinds[name], PluginSettings) or kinds[name].plugin != name:
                raise InvalidInput(f"plugin {name!r}: {plugin.settings} holds no settings of it")
    sections = {name: (kind, kind()) for name, kind in kinds.items()}
    made: type[FrozenModel] = create_model("PluginSections", __base__=FrozenModel, **sections)  # type: ignore[call-overload]
    return made
