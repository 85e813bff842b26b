"""One tool call's place in its rollout, as the tool sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from clotho.identifiers import job_key
from clotho.sandbox.base import SandboxInstance
from clotho.toolsets.base import ToolSettings


@dataclass(frozen=True)
class BoundCall:
    """A CallContext whose job keys derive from `scope`: the same in every attempt at the call."""

    rollout: str
    scope: tuple[str | int, ...]
    tool_call_id: str
    settings: ToolSettings
    state: Mapping[str, JsonValue]
    instance: SandboxInstance | None
    seen: Callable[[int], None] = field(default=lambda offset: None)

    @property
    def sandbox(self) -> SandboxInstance:
        assert self.instance is not None, "a tool without sandboxed = True asked for the sandbox"
        return self.instance

    def job_key(self, *suffix: str | int) -> str:
        return job_key(self.rollout, *self.scope, *suffix)

    def progress(self, offset: int) -> None:
        self.seen(offset)
