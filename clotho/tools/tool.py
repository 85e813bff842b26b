"""The interface of tools, and the context that a call runs in."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import JsonValue

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import job_key
from clotho.plugin_settings import BroughtToolset, RunKind, RunSections, of_kind_here, run_settings_here
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.delegation import DelegatedTask, DelegationSettings

COMMAND_SECONDS = 120.0
"""A command's default timeout, in seconds.

The environment may set another one (`EnvironmentConfig.terminal_timeout`), which is kept in the run's manifest as
`ToolSettings.terminal_timeout`; the model may ask for another one for a single call (`Terminal.run`). A verifier's
commands have `ToolContext.terminal`'s, and a recorded solution's the longest that a command may ask for.
"""
Arguments = dict[str, Any]
"""Tool arguments after coercion to the tool's schema."""


class ToolSettings(FrozenModel):
    """Settings of a run's tools; part of the run's fingerprint."""

    terminal_timeout: float = COMMAND_SECONDS
    longest_command_seconds: float = 600.0
    """Most that a command in the foreground may ask for."""
    terminal_cwd: str = "/work"
    max_result_chars: int = 100_000
    max_turn_chars: int = 200_000
    preview_chars: int = 1_500
    result_chars: dict[str, int] = {}
    """Per-tool overrides of max_result_chars."""
    plugins: RunSections = {}
    """The run's settings for plugins, by the plugin's name; `of` reads them."""
    delegation: DelegationSettings | None = None
    """Settings of delegated tasks; None: delegate_task isn't offered."""
    redact: tuple[str, ...] = ()
    """Environment variables of the process that runs the tools: no result shows their values."""

    def of(self, kind: type[RunKind]) -> RunKind | None:
        """The run's settings for a plugin, given their class; None without any."""
        fields = self.plugins.get(kind.plugin)
        return None if fields is None else of_kind_here(kind, fields)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The environment variables whose values no result may show: `redact`, and those of plugins."""
        return (*self.redact, *(name for each in run_settings_here(self.plugins) for name in each.secrets))

    @property
    def toolsets(self) -> tuple[BroughtToolset, ...]:
        """The toolsets that plugins' settings bring."""
        return tuple(toolset for each in run_settings_here(self.plugins) for toolset in each.toolsets)


USUAL = ToolSettings()


class ToolPlace(FrozenModel):
    """The origin of a tool that a run's settings bring."""

    plugin: str
    """The plugin whose tool source makes it."""
    at: dict[str, str]
    """Its place there, as the source names it."""


class ToolOutcome(FrozenModel):
    content: str
    """The text that the model is shown: JSON, by convention."""
    error: str | None = None
    """Set where the call counts as a tool error."""
    state: dict[str, JsonValue] = {}
    """Slots of state left for later calls of this rollout; a slot belongs to the tools that name it."""


@dataclass(frozen=True)
class CallFailure:
    """A call that counts as a tool error; its texts are cut for metrics."""

    tool: str
    arguments: str
    """The arguments as the model wrote them, at most 150 characters."""
    error: str
    """The error, at most 300 characters."""


@dataclass(frozen=True)
class Dispatched:
    """The outcome of a call, ready for the journal."""

    content: str
    """The text that the model is shown."""
    failure: CallFailure | None = None
    state: dict[str, JsonValue] = field(default_factory=dict)
    changes: bool = False
    """The tool ran, and the call may have changed the sandbox."""
    spilled: bool = False
    """The result was too long, and went into a file of the sandbox."""
    exit_code: int | None = None
    """The exit code in a command's result."""
    names_error: bool = False
    """The result names an error, whether or not it counts as one."""


async def _first() -> bool:
    return True


async def stands() -> None:
    """Return: nobody takes over a call that has no claim."""


async def each_time(name: str, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
    return await work()


@dataclass(frozen=True)
class CallContext:
    """One call's place in its rollout. Its job keys derive from `call` and `lease`: every attempt has the same."""

    rollout: str
    call: tuple[str | int, ...]
    """The call's place in its rollout."""
    tool_call_id: str
    """The id the model server gave this call: foreign text."""
    settings: ToolSettings
    state: Mapping[str, JsonValue]
    """The slots as earlier calls left them."""
    instance: SandboxInstance | None
    lease: int | None = None
    """The number of the one that it is made under: a command in a lost sandbox is another than in the next."""
    seconds_left: float | None = None
    """Seconds left to the rollout; None: no limit."""
    progress: Callable[[int], None] = field(default=lambda offset: None)
    """Report how much of a long command's output was seen."""
    claim: Callable[[], Awaitable[bool]] = field(default=_first)
    """Mark the call as begun, for good; False where an earlier attempt has done so, and left no answer."""
    require_claim: Callable[[], Awaitable[None]] = field(default=stands)
    """Raise TakenOver where another process has taken the call over since it was marked."""
    once: Callable[[str, Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]] = field(
        default=each_time
    )
    """Do a part of the call and journal its outcome under a name, or find that of an earlier attempt."""
    variable: Callable[[str], str | None] = field(default=lambda name: None)
    """Reads an environment variable of the worker: keys are named by theirs."""
    scope: str = ""
    """Names what the workers of one host and store share, such as its browser."""
    dispatcher: "ToolDispatcher | None" = None
    """For calls of other tools within this one."""
    delegated: DelegatedTask | None = None
    """The task that this call has delegated."""
    offered: frozenset[str] = frozenset()
    """The tools that the model is offered."""

    @property
    def sandbox(self) -> SandboxInstance:
        """The rollout's sandbox. Only for tools with `sandboxed = True`."""
        assert self.instance is not None, "a tool without sandboxed = True asked for the sandbox"
        return self.instance

    @property
    def call_key(self) -> str:
        """32 hexadecimal digits that name this call: the same in every sandbox where it is made."""
        return job_key(self.rollout, *self.call)

    def job_key(self, *suffix: str | int) -> str:
        """The key for a command of this call: the same in every attempt."""
        lease = () if self.lease is None else (self.lease,)
        return job_key(self.rollout, *self.call, *lease, *suffix)


@dataclass(frozen=True)
class Question:
    """What a verifier asks a model. A plugin's `judge` answers it, with None where the run names no model."""

    prompt: str
    number: int
    """How often this verification has asked the same before."""
    key: str
    """Key of the question: the same in every attempt at this rollout's verification."""
    settings: ToolSettings
    once: Callable[[str, Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]]
    variable: Callable[[str], str | None]


class ToolDispatcher(Protocol):
    """What a call sees of its dispatcher (`clotho/tools/dispatch.py`): the other tools, and calls of them."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def variable(self) -> Callable[[str], str | None]: ...

    def tool(self, name: str) -> "Tool | None": ...

    async def run(
        self, name: str, arguments: str, offered: Collection[str], context: CallContext, turn_chars: int = 0
    ) -> Dispatched: ...


class Tool(ABC):
    """One tool: a name, a JSON schema, and `run`. Instances hold no state of a rollout."""

    name: ClassVar[str]
    toolset: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[dict[str, JsonValue]]
    sandboxed: ClassVar[bool] = True
    changes_workspace: ClassVar[bool] = True
    """Whether a call may change the sandbox: its files, or what runs in it. `changes` may say so for each call."""
    read_only: ClassVar[bool] = False
    """Whether no call changes anything, not even the tool state: `parallel_tools` runs such calls side by side."""
    unlimited_result: ClassVar[bool] = False
    """Exempt from the result budget, because it has a limit of its own."""
    called_by_code: ClassVar[bool] = False
    """Whether `execute_code` may call it, where the model is offered it."""
    place: ClassVar[ToolPlace | None] = None
    """Set by a tool source, which makes the tool again from it."""

    def missing(self, settings: ToolSettings) -> str | None:
        """Why this tool can't be offered to a run with these settings, or None."""
        return None

    @abstractmethod
    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome: ...

    def changes(self, arguments: Arguments) -> bool:
        """Whether a call with these arguments may change the sandbox."""
        return self.changes_workspace

    def repeats(self, settings: ToolSettings) -> bool:
        """Whether a call has the same effect when the code that made it is run again in the next sandbox."""
        return True

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome | None:
        """Repeat a finished call in the sandbox that follows a lost one; `shown` is the result that the model saw.

        None: it can't be repeated, and the rollout is marked as diverged.
        """
        return None

    def parameters_in(self, settings: ToolSettings) -> dict[str, JsonValue]:
        """The parameters that a run with these settings shows its model."""
        return self.parameters

    def schema(self, settings: ToolSettings = USUAL) -> dict[str, JsonValue]:
        """The tool as the OpenAI API describes it."""
        parameters = self.parameters_in(settings)
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }


def is_tool(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Tool) and not inspect.isabstract(value)
