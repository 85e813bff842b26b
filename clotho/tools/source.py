"""Sources of tools that a run's settings bring, such as those of its MCP servers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clotho.plugin import load, plugins
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.tool import Tool, ToolSettings

Wanted = Callable[[str], bool]
"""Whether a run offers a toolset."""


@dataclass(frozen=True)
class ProbedSandbox:
    """A sandbox in which a source looks for its tools; `scope` begins the keys of its jobs."""

    instance: SandboxInstance
    scope: tuple[str | int, ...]
    directory: str


class ToolSource(ABC):
    """The tools of a plugin in one process. Its constructor takes a function that reads an environment variable."""

    @abstractmethod
    def needs_sandbox(self, settings: ToolSettings, wanted: Wanted) -> bool:
        """Whether the tools of wanted toolsets can only be found in a sandbox."""

    @abstractmethod
    async def tools(
        self, settings: ToolSettings, wanted: Wanted, sandbox: ProbedSandbox | None
    ) -> list[Tool]:
        """The tools of wanted toolsets as they are now, each with its `place`."""

    @abstractmethod
    def tool(
        self, name: str, at: Mapping[str, str], description: str, parameters: dict[str, Any], sandboxed: bool
    ) -> Tool:
        """The tool at a place that `tools` gave, as a group's manifest keeps it."""

    @abstractmethod
    async def close(self) -> None:
        """Give back what calls have left open in this process."""


class ToolSources:
    """The sources of all installed plugins."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._sources: dict[str, ToolSource] = {
            name: load(plugin.tool_source)(variable)
            for name, plugin in plugins().items()
            if plugin.tool_source is not None
        }

    def needs_sandbox(self, settings: ToolSettings, wanted: Wanted) -> bool:
        return any(source.needs_sandbox(settings, wanted) for source in self._sources.values())

    async def tools(
        self, settings: ToolSettings, wanted: Wanted, sandbox: ProbedSandbox | None
    ) -> list[Tool]:
        """The tools of all sources. Raises as they do."""
        return [
            tool
            for source in self._sources.values()
            for tool in await source.tools(settings, wanted, sandbox)
        ]

    def get(self, plugin: str) -> ToolSource | None:
        return self._sources.get(plugin)

    async def close(self) -> None:
        for source in self._sources.values():
            await source.close()
