"""The tools of an environment: the installed ones, and those that its own modules declare."""

import asyncio
import importlib
from collections.abc import Callable, Iterator

from clotho.environment.environment import Environment
from clotho.environment.functions import declared_tools
from clotho.environment.loading import load_environment
from clotho.errors import InvalidInput
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import Tool


class EnvironmentTools:
    """Registries and dispatchers by environment, each made once in a process."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._variable = variable
        self._made: dict[str, Dispatcher] = {}

    async def registry(self, environment: str) -> Registry:
        return (await self.dispatcher(environment)).registry

    async def dispatcher(self, environment: str) -> Dispatcher:
        """The dispatcher of an environment's tools. Raises as `registry_of` does."""
        if environment not in self._made:
            registry = await asyncio.to_thread(registry_of, environment)
            self._made.setdefault(environment, Dispatcher(registry, self._variable))
        return self._made[environment]


def registry_of(environment: str) -> Registry:
    """The tools of an environment; where it isn't here, the installed ones.

    Raises EnvironmentFailed for a module that is here and fails, InvalidInput for two tools of one name.
    """
    try:
        kind = load_environment(environment)
    except InvalidInput:
        return Registry.discover()
    return Registry([*Registry.discover(), *own_tools(kind)])


def own_tools(environment: type[Environment]) -> Iterator[Tool]:
    """The tools in the environment's module, and in those of its base classes."""
    modules = {kind.__module__: None for kind in environment.__mro__ if kind not in Environment.__mro__}
    seen: set[str] = set()
    for module in modules:
        for found in declared_tools(importlib.import_module(module)):
            if found.name not in seen:  # a base's tool that the module imports, too
                seen.add(found.name)
                yield found
