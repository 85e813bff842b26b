"""The tools of an environment: the installed ones, and those that its own modules declare."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from clotho.environment.environment import Environment
from clotho.environment.function_tools import function_tool
from clotho.environment.handles import EnvironmentHandle
from clotho.environment.in_process import called_in_thread, functions_of, own_modules, tool_classes
from clotho.environment.instances import MOST_POOLS, Environments
from clotho.environment.loading import load_environment
from clotho.errors import EnvironmentUnknown
from clotho.rollouts.group import OfferedTool
from clotho.rollouts.run import RunManifest
from clotho.tools.dispatch import OWN_SCOPE, Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.source import ToolSources
from clotho.tools.tool import Tool


class EnvironmentTools:
    """Dispatchers of environments' tools, each made once in a process."""

    def __init__(
        self, variable: Callable[[str], str | None], environments: Environments, scope: str = OWN_SCOPE
    ) -> None:
        self._variable = variable
        self._environments = environments
        self.scope = scope
        self._made: dict[int, tuple[EnvironmentHandle, Dispatcher]] = {}
        self._not_here: dict[str, Dispatcher] = {}
        self.sources = ToolSources(variable)

    async def registry(self, manifest: RunManifest) -> Registry:
        return (await self.dispatcher(manifest)).registry

    async def dispatcher(self, manifest: RunManifest, offered: Iterable[OfferedTool] = ()) -> Dispatcher:
        """The dispatcher of the run's own tools, the installed ones, and those `offered` that its settings bring.

        Only installed ones where the environment isn't here. Raises EnvironmentFailed for one that is here and
        fails, InvalidInput for two tools of one name.
        """
        made = await self._dispatcher(manifest)
        brought = [tool for each in offered if (tool := self._brought(each)) is not None]
        return made.with_tools(brought) if brought else made

    async def _dispatcher(self, manifest: RunManifest) -> Dispatcher:
        if (made := self._not_here.get(manifest.run)) is not None:
            return made
        try:
            environment = await self._environments.known(manifest)
        except EnvironmentUnknown:
            found = Dispatcher(await asyncio.to_thread(Registry.discover), self._variable, self.scope)
            # another call may have made one during the await: all get the same
            kept = self._not_here.setdefault(manifest.run, found)
            _drop_oldest(self._not_here)
            return kept
        known = self._made.get(id(environment))
        if known is None:
            registry = await asyncio.to_thread(lambda: Registry([*Registry.discover(), *environment.tools]))
            known = environment, Dispatcher(registry, self._variable, self.scope)
            self._made[id(environment)] = known  # beside the environment, whose id none other has meanwhile
            _drop_oldest(self._made)
        return known[1]

    def _brought(self, offered: OfferedTool) -> Tool | None:
        """The tool, made again by its source; None without a source: calls then find that it isn't installed."""
        if offered.place is None or (source := self.sources.get(offered.place.plugin)) is None:
            return None
        match offered.tool_schema:
            case {"function": {"description": str(said), "parameters": dict(parameters)}}:
                return source.tool(offered.name, offered.place.at, said, parameters, offered.sandboxed)
        return None


def _drop_oldest(made: dict[Any, Any]) -> None:
    """Keep as many as there are environments with processes: what is dropped is made again when it is needed."""
    while len(made) > MOST_POOLS:
        del made[next(iter(made))]


def registry_of(environment: str) -> Registry:
    """The tools of an environment, called in this process; where it isn't here, the installed ones.

    Raises EnvironmentFailed for a module that is here and fails, InvalidInput for two tools of one name.
    """
    try:
        kind = load_environment(environment)
    except EnvironmentUnknown:
        return Registry.discover()
    return Registry([*Registry.discover(), *own_tools(kind)])


def own_tools(environment: type[Environment]) -> Iterator[Tool]:
    """The tools in the environment's module, and in those of its base classes, called in this process."""
    for each in functions_of(environment):
        yield function_tool(each.description, partial(called_in_thread, each))
    yield from tool_classes(own_modules(environment))
