"""Environments that are named by what they are made from, as `tasks:PATH`, by a plugin's scheme."""

from pydantic import JsonValue

from clotho.plugin import load, plugins


def named_environment(name: str) -> tuple[str, dict[str, JsonValue]]:
    """The environment that `name` means, and the configuration that `SCHEME:REST` stands for."""
    scheme, colon, rest = name.partition(":")
    for plugin in plugins().values():
        if colon and scheme in plugin.environments:
            found: tuple[str, dict[str, JsonValue]] = load(plugin.environments[scheme])(rest)
            return found
    return name, {}
