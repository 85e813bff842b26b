"""What an environment author imports: Environment, AgentResult, Reward and ToolContext."""

import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from clotho.entries.items import Item
from clotho.entries.rollout import ToolError
from clotho.errors import EnvironmentFailed, InvalidInput
from clotho.records.base import Record
from clotho.tool_context import AsyncToolContext, ToolContext

__all__ = [
    "AgentResult",
    "AsyncToolContext",
    "Environment",
    "EnvironmentConfig",
    "Item",
    "Reward",
    "ToolContext",
    "ToolError",
    "load_environment",
]

EXAMPLES = "environments"


class EnvironmentConfig(BaseModel):
    """What an environment asks for by default; a run may override any of it. Unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled_toolsets: tuple[str, ...] | None = None
    disabled_toolsets: tuple[str, ...] = ()
    distribution: str | None = None
    max_agent_turns: int = 30
    max_sampled_tokens: int | None = None
    max_active_seconds: float | None = None
    system_prompt: str | None = None
    agent_temperature: float = 1.0
    max_token_length: int | None = None
    """Tokens that one turn may sample."""
    terminal_timeout: float = 120.0
    extra_body: dict[str, JsonValue] = {}


class AgentResult(Record):
    """A finished rollout as `compute_reward` sees it."""

    messages: list[dict[str, JsonValue]]
    managed_state: dict[str, JsonValue] | None = None
    turns_used: int
    finished_naturally: bool
    """The model stopped calling tools, rather than meeting a limit."""
    reasoning_per_turn: list[str | None]
    tool_errors: list[ToolError]


class Reward(Record):
    """A score with what explains it."""

    score: float
    breakdown: dict[str, float] = {}
    log: str = ""


class Environment:
    """A task distribution: items, prompts and rewards. Subclass it; nothing here knows of Temporal.

    Workers make instances as they need them and call `setup` once on each: keep no state between methods
    that a second instance would lack.
    """

    config_class: ClassVar[type[EnvironmentConfig]] = EnvironmentConfig

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    async def setup(self) -> None:
        """Load what the other methods need."""

    async def get_next_item(self) -> Item | None:
        """The next dataset item, a JSON object; None ends the dataset. The order must be reproducible."""
        raise NotImplementedError

    def format_prompt(self, item: Item) -> str | list[dict[str, Any]]:
        """The user's message, or whole messages in the OpenAI format."""
        raise NotImplementedError

    def workspace_files(self, item: Item) -> Mapping[str, str | bytes]:
        """Files put into the sandbox before the agent starts, by path."""
        return {}

    def hidden_files(self, item: Item) -> Mapping[str, str | bytes]:
        """Files that only verification sees, by path below /verifier."""
        return {}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Any:
        """A finite number or a Reward; may be `async def`, with `ctx.aio`. An exception is no reward."""
        raise NotImplementedError


def load_environment(name: str) -> type[Environment]:
    """The class called `module:Class`, or the one environment in `environments/{name}.py`.

    Raises InvalidInput naming what there is, EnvironmentFailed for a module that is there and fails.
    """
    module_name, _, class_name = name.partition(":")
    path = module_name if class_name else f"{EXAMPLES}.{module_name}"
    try:
        module = importlib.import_module(path)
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}.")):
            raise EnvironmentFailed(f"environment {name!r} can't be imported: {_at_fault(error)}") from error
        known = ", ".join(known_environments()) or "none"
        raise InvalidInput(
            f"unknown environment {name!r}: there is no module {path}. Here are: {known}; or give module:Class"
        ) from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Environment) and value.__module__ == module.__name__
    ]
    chosen = [value for value in found if not class_name or value.__name__ == class_name]
    if len(chosen) != 1:
        classes = ", ".join(value.__name__ for value in found) or "none"
        raise InvalidInput(
            f"environment {name!r}: module {path} has these environments: {classes}; give module:Class"
        )
    return chosen[0]


def sources_of(name: str) -> tuple[Path, ...]:
    """The files of environment `name` and of its base classes, which no agent may read; none if it isn't here.

    Raises EnvironmentFailed for a module that is here and fails.
    """
    try:
        environment = load_environment(name)
    except InvalidInput:
        return ()
    modules = {kind.__module__ for kind in environment.__mro__ if kind not in Environment.__mro__}
    files = {inspect.getsourcefile(importlib.import_module(name)) for name in modules}
    return tuple(sorted(Path(file) for file in files if file is not None))


def _at_fault(error: Exception) -> str:
    """The exception on one line, and where the author's code raised it."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if "importlib" not in f.filename]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


def known_environments() -> list[str]:
    """The names of the environments beside the worker."""
    try:
        package = importlib.import_module(EXAMPLES)
    except ModuleNotFoundError:
        return []
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def make_environment(name: str, config: Mapping[str, JsonValue]) -> Environment:
    """An instance with `config`; raises InvalidInput naming the fields at fault."""
    kind = load_environment(name)
    try:
        return kind(kind.config_class.model_validate(config))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise InvalidInput(f"configuration of environment {name!r}: {faults}") from error
