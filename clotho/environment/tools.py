"""The tools of an environment: the installed ones, and those that its own modules declare."""

import asyncio
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from clotho.environment.environment import Environment
from clotho.environment.functions import declared_tools
from clotho.environment.loading import load_environment
from clotho.errors import InvalidInput
from clotho.rollouts.group import OfferedTool, ServerTool
from clotho.tools.dispatch import OWN_SCOPE, Dispatcher
from clotho.tools.mcp.servers import McpServers, ProbedSandbox
from clotho.tools.mcp.settings import McpServer
from clotho.tools.mcp.tool import McpTool, Offer, mcp_tool, tools_of
from clotho.tools.registry import Registry
from clotho.tools.tool import Tool


class EnvironmentTools:
    """Registries and dispatchers by environment, each made once in a process."""

    def __init__(self, variable: Callable[[str], str | None], scope: str = OWN_SCOPE) -> None:
        self._variable = variable
        self.scope = scope
        self._made: dict[str, Dispatcher] = {}
        self.servers = McpServers(variable)

    async def registry(self, environment: str) -> Registry:
        return (await self.dispatcher(environment)).registry

    async def dispatcher(self, environment: str, offered: Iterable[OfferedTool] = ()) -> Dispatcher:
        """The dispatcher of an environment's tools, and of those of servers that are `offered`.

        Raises as `registry_of` does.
        """
        if environment not in self._made:
            registry = await asyncio.to_thread(registry_of, environment)
            self._made.setdefault(environment, Dispatcher(registry, self._variable, self.scope))
        made = self._made[environment]
        of_servers = [tool for each in offered if (tool := self._tool_of_server(each)) is not None]
        return made.with_tools(of_servers) if of_servers else made

    async def of_servers(
        self, wanted: Mapping[str, McpServer], sandbox: ProbedSandbox | None
    ) -> list[McpTool]:
        """The tools that servers have now; those of sandboxes are asked in `sandbox`."""
        found = [tools_of(name, server, self.servers, sandbox) for name, server in wanted.items()]
        return [tool for tools in await asyncio.gather(*found) for tool in tools]

    def _tool_of_server(self, offered: OfferedTool) -> McpTool | None:
        match offered.of_server, offered.tool_schema:
            case ServerTool() as place, {
                "function": {"description": str(said), "parameters": dict(parameters)}
            }:
                return mcp_tool(
                    offered.name,
                    Offer(place.server, place.tool),
                    said,
                    parameters,
                    self.servers,
                    offered.sandboxed,
                )
        return None


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
