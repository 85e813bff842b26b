"""Settings of an MCP server: where it runs, what it is given, and what is known of its tools."""

import importlib.util
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from clotho.frozen_model import FrozenModel
from clotho.plugin_settings import BroughtToolset, RunPluginSettings

ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EVERY_TOOL = "*"
TOOLSET_PREFIX = "mcp-"
EXTRA = "the `mcp` package is missing: pip install 'clotho-rollouts[mcp]'"


class McpServer(FrozenModel):
    """A program that speaks MCP over its standard streams, or a service that speaks it over HTTP."""

    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The program and its arguments."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """The address of a service that speaks streamable HTTP."""
    where: Literal["sandbox", "host"] = "sandbox"
    """Where the program runs: in the rollout's sandbox, or on the `host`, with the worker's rights."""
    env: dict[VariableName, str] = {}
    """Environment variables of the program. Its others are PATH, HOME and LANG."""
    secrets: dict[str, VariableName] = {}
    """Further variables, or headers of the service -> the environment variable of the workers with the value."""
    seconds: float = Field(default=120.0, gt=0)
    """Seconds after which a call is given up, and the server ended."""
    start_seconds: float = Field(default=60.0, gt=0)
    """Seconds in which it has to start and list its tools."""
    idempotent: tuple[str, ...] = ()
    """Names of its tools whose calls may be repeated when their answers are lost; `*`: all."""

    @model_validator(mode="after")
    def _complete(self) -> "McpServer":
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a command or a url")
        if self.url is not None and self.env:
            raise ValueError("env is for a command: a service has headers, by secrets")
        if self.secrets and self.sandboxed:
            raise ValueError("secrets never enter a sandbox: they are for a url, or a command on the host")
        return self

    @property
    def sandboxed(self) -> bool:
        """Whether it runs in the rollout's sandbox."""
        return self.command is not None and self.where == "sandbox"

    @property
    def place(self) -> str:
        """Where it runs, for readers."""
        if self.url is not None:
            return "at its URL"
        return "in the sandbox" if self.sandboxed else "on a worker"

    def repeats(self, tool: str) -> bool:
        """Whether a call of `tool` may be made again when its answer is lost."""
        return EVERY_TOOL in self.idempotent or tool in self.idempotent


def toolset_of(server: str) -> str:
    """The toolset that the tools of a server are."""
    return TOOLSET_PREFIX + server


def missing_package() -> str | None:
    """What is missing for servers to be used, or None."""
    return None if importlib.util.find_spec("mcp") else EXTRA


class McpSettings(RunPluginSettings):
    """The MCP servers of a run; the tools of each are the toolset `mcp-{name}`."""

    plugin: ClassVar[str] = "mcp"
    servers: dict[ServerName, McpServer] = {}
    """Servers by name."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(variable for server in self.servers.values() for variable in server.secrets.values())

    @property
    def toolsets(self) -> tuple[BroughtToolset, ...]:
        return tuple(
            BroughtToolset(toolset_of(name), f"mcp_{name}_…", server.place, missing_package())
            for name, server in self.servers.items()
        )

    @property
    def on_hosts(self) -> frozenset[str]:
        commands = {name: server for name, server in self.servers.items() if server.command}
        return frozenset(f"{name} {server!r}" for name, server in commands.items() if not server.sandboxed)
