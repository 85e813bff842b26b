"""Settings of an MCP server: where it runs, what it is given, and what is known of its tools."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from clotho.frozen_model import FrozenModel

ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EVERY_TOOL = "*"
TOOLSET_PREFIX = "mcp-"


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

    def repeats(self, tool: str) -> bool:
        """Whether a call of `tool` may be made again when its answer is lost."""
        return EVERY_TOOL in self.idempotent or tool in self.idempotent


def toolset_of(server: str) -> str:
    """The toolset that the tools of a server are."""
    return TOOLSET_PREFIX + server


def wanted_servers(
    servers: Mapping[str, McpServer], enabled: Sequence[str] | None, disabled: Sequence[str]
) -> dict[str, McpServer]:
    """The servers whose toolsets are enabled; `enabled=None`: all but those `disabled`."""
    return {
        name: server
        for name, server in servers.items()
        if (enabled is None or toolset_of(name) in enabled) and toolset_of(name) not in disabled
    }
