"""One tool call's place in its rollout, as the tool sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from clotho.identifiers.hashed import job_key
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.tool import ToolSettings


@dataclass(frozen=True)
class BoundCall:
    """A CallContext whose job keys derive from `call` and `lease`: the same in every attempt at the call."""

    rollout: str
    call: tuple[str | int, ...]
    """The call's place in its rollout."""
    tool_call_id: str
    settings: ToolSettings
    state: Mapping[str, JsonValue]
    instance: SandboxInstance | None
    lease: int | None = None
    """The number of the one that it is made under: a command in a lost sandbox is another than in the next."""
    seen: Callable[[int], None] = field(default=lambda offset: None)

    @property
    def sandbox(self) -> SandboxInstance:
        assert self.instance is not None, "a tool without sandboxed = True asked for the sandbox"
        return self.instance

    @property
    def call_key(self) -> str:
        return job_key(self.rollout, *self.call)

    def job_key(self, *suffix: str | int) -> str:
        lease = () if self.lease is None else (self.lease,)
        return job_key(self.rollout, *self.call, *lease, *suffix)

    def progress(self, offset: int) -> None:
        self.seen(offset)
