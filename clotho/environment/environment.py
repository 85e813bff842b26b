"""An environment: its configuration, its methods, and what they take and give."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from clotho.dataset_config import DatasetConfig, ItemChoice
from clotho.datasets.items import chosen_items, dataset_items
from clotho.environment.evaluated import EvaluatedItem
from clotho.environment.tool_context import ToolContext
from clotho.errors import EnvironmentFailed, InvalidInput
from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.rollouts.call import ToolError
from clotho.rollouts.item import Item
from clotho.sandbox.item import ItemSandbox
from clotho.tools.delegation import DelegationSettings
from clotho.tools.distributions import Distribution
from clotho.tools.tool import COMMAND_SECONDS

MOST_ARTIFACTS = 64 << 20
"""Bytes of a rollout's artifacts."""
# all of them are in memory at once; without a choice they are drawn one by one
MOST_CHOSEN_FROM = 1_000_000
"""Items of an environment that can be shuffled, sampled or chosen by id."""
ITEM: TypeAdapter[Item] = TypeAdapter(Item)


class EnvironmentConfig(BaseModel):
    """Defaults of an environment; a run may override any of them. Unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetConfig | None = None
    """The dataset whose rows are the items, in place of those of `get_next_item`."""
    item_choice: Annotated[ItemChoice | None, WHERE_SET] = None
    """The choice and order of the environment's own items: ids, shuffle, sample."""
    enabled_toolsets: tuple[str, ...] | None = None
    """Toolsets to offer; None: all that are available."""
    disabled_toolsets: tuple[str, ...] = ()
    """Toolsets to leave out."""
    distribution: Distribution | None = None
    """The distribution from which each group's toolsets are sampled: a name, or a probability for each toolset."""
    max_agent_turns: int = 30
    """Turns after which a rollout is ended and verified."""
    max_sampled_tokens: int | None = None
    """Sampled tokens after which a rollout is ended and verified."""
    max_active_seconds: float | None = None
    """Seconds of model and tool calls after which a rollout is ended and verified."""
    max_calls_per_turn: int = Field(default=64, ge=1)
    """Tool calls of a turn that are run. The model is told that the rest were left out."""
    system_prompt: str | None = None
    """System message before every prompt."""
    agent_temperature: float = 1.0
    """Sampling temperature of every turn."""
    max_token_length: int | None = None
    """Tokens that one turn may sample."""
    terminal_timeout: float = COMMAND_SECONDS
    """Seconds that a command may take unless the model asks for another limit."""
    plugins: dict[str, Any] = {}
    """Settings of plugins by name: {"skills": {"folder": "/data/skills"}}, or `sections_of` their classes."""
    delegation: Annotated[DelegationSettings | None, WHERE_SET] = (
        None  # manifests without it stay as they are
    )
    """What tasks may be delegated, and whether the tokens of those who do them are trained on."""
    writable_roots: tuple[str, ...] = ()
    """Further folders that commands may write to, such as /logs; /work, /home/agent and /tmp are there."""
    path_aliases: dict[str, str] = {}
    """Further paths of such folders: {"/app": "/work"}."""
    extra_body: dict[str, JsonValue] = {}
    """Further fields of every model request."""
    verifier_cwd: str | None = None
    """Directory of the verifier's first command, and of its relative paths; by default the agent's shell's.

    Absolute, or below ~, $TMPDIR (the verifier's own) or $CLOTHO_HIDDEN_FILES."""
    trust_workspace: bool = False
    """Whether tools that the verifier starts load the workspace's modules, plugins, hooks and settings."""
    variables: Annotated[tuple[str, ...], WHERE_SET] = ()
    """Environment variables of the workers that the environment's code gets; it has no others of theirs."""
    keep_services: bool = False
    """Whether the agent's background processes stay: it is then verified in the agent's own instance."""


class AgentResult(FrozenModel):
    """A finished rollout as `compute_reward` sees it."""

    messages: list[dict[str, JsonValue]]
    managed_state: dict[str, JsonValue] | None = None
    turns_used: int
    finished_naturally: bool
    """The model stopped calling tools, rather than meeting a limit."""
    reasoning_per_turn: list[str | None]
    tool_errors: list[ToolError]


class Reward(FrozenModel):
    """A score with what explains it."""

    score: float
    breakdown: dict[str, float] = {}
    log: str = ""
    artifacts: dict[str, bytes] = {}
    """Files to keep, by relative paths without `..`; at most 64 MiB."""


class Solution(FrozenModel):
    """The solution of an item, for the oracle: a shell command, and files that are there before it runs."""

    command: str
    files: dict[str, str | bytes] = {}
    seconds: float | None = None
    """Seconds that the command may take; None: a day."""


class Environment:
    """A task distribution: items, prompts and rewards. Subclass it; nothing here knows of Temporal.

    Workers keep instances in processes of their own, start and end these as they need them, and call `setup` once
    in each: what an instance remembers between calls is not kept. They call each method in a thread, and what is
    `async` on one event loop, which lives as long as the process.
    """

    config_class: ClassVar[type[EnvironmentConfig]] = EnvironmentConfig
    held_out: ClassVar[Mapping[str, JsonValue]] = {}
    """Fields of the configuration that make the held-out items of evaluations, such as a seed or a split."""

    max_processes: ClassVar[int | None] = None
    """Most processes in which a worker keeps instances: 1 where each holds a GPU. None: the worker's bound."""

    _rows: Iterator[Item] | None = None

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    async def setup(self) -> None:
        """Load what the other methods need."""

    async def get_next_item(self) -> Item | None:
        """The next dataset item, a JSON object; None ends the dataset. The order must be reproducible."""
        raise InvalidInput("this environment has no items of its own: give the run a --dataset")

    def format_prompt(self, item: Item) -> str | list[dict[str, Any]]:
        """The user's message, or whole messages in the OpenAI format: by default the item's `prompt`."""
        prompt = item.get("prompt")
        if not isinstance(prompt, str | list):
            raise InvalidInput("the item has no `prompt`: name its field with --prompt-field")
        return cast(str | list[dict[str, Any]], prompt)

    def workspace_files(self, item: Item) -> Mapping[str, str | bytes]:
        """Files put into the sandbox before the agent starts, by path."""
        return {}

    def hidden_files(self, item: Item) -> Mapping[str, str | bytes]:
        """Files that only verification sees, by path below `ctx.hidden_files`."""
        return {}

    def sandbox(self, item: Item) -> ItemSandbox:
        """Settings of the item's sandbox that replace those of the run."""
        return ItemSandbox()

    def grading_sandbox(self, item: Item) -> ItemSandbox | None:
        """The sandbox of `ctx.grading`, which has nothing of the agent's; None: there is none."""
        return None

    def time_limit(self, item: Item) -> float | None:
        """Seconds of model and tool calls after which the item's rollouts end; None: the run's limit alone."""
        return None

    def verification_seconds(self, item: Item) -> float | None:
        """Seconds that the item's verification may take, where that is longer than the run lets it."""
        return None

    def solution(self, item: Item) -> Solution:
        """The oracle's solution, which proves that the item can be solved."""
        raise InvalidInput("this environment has no solutions for the oracle to run")

    def same_item(self, recorded: Item, item: Item) -> bool:
        """Whether a rollout of item `recorded` may be replayed in one of `item`."""
        return recorded == item

    async def next_item(self) -> Item | None:
        """The next of the chosen items: rows of the configured dataset, or what `get_next_item` gives.

        Raises EnvironmentFailed for what isn't an item, and InvalidInput where there are too many to choose from.
        """
        dataset, choice = self.config.dataset, self.config.item_choice
        if dataset is None and choice is None:
            return await self._own_item()
        if self._rows is None:
            rows = iter(await self._own_items()) if dataset is None else dataset_items(dataset)
            self._rows = rows if choice is None else chosen_items(choice, rows, type(self).__name__)
        return next(self._rows, None)

    async def _own_item(self) -> Item | None:
        drawn = await self.get_next_item()
        return None if drawn is None else json_item(drawn)

    async def _own_items(self) -> list[Item]:
        items: list[Item] = []
        while (item := await self._own_item()) is not None:
            items.append(item)
            if len(items) > MOST_CHOSEN_FROM:
                raise InvalidInput(
                    f"{type(self).__name__} has over {MOST_CHOSEN_FROM:,} items, too many to choose from"
                )
        return items

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Any:
        """A finite number or a Reward; may be `async def`, with `ctx.aio`. An exception is no reward."""
        raise NotImplementedError

    def blames_agent(self, item: Item, ctx: ToolContext) -> bool:
        """Whether a verifier that failed twice fails by the agent's doing: the score is then 0.

        `ctx.grading` is a sandbox without anything of the agent's, to try the verifier in.
        """
        return False

    def evaluate(self, items: Sequence[EvaluatedItem]) -> Any:
        """Metrics of an evaluation by name, beside those that every one has; may be `async def`."""
        return {}


def json_item(drawn: Any) -> Item:
    """The item that `get_next_item` returned; raises EnvironmentFailed for what isn't a JSON object."""
    if not isinstance(drawn, Mapping):
        raise EnvironmentFailed(f"get_next_item returned {drawn!r:.200}: an item is a JSON object")
    try:
        item = ITEM.validate_python(dict(drawn))
        # pydantic accepts NaN and infinities as JSON values
        json.dumps(item, allow_nan=False)
        return item
    except (ValidationError, ValueError) as error:
        raise EnvironmentFailed(f"get_next_item returned an item that isn't JSON: {error}") from error


def checked_metrics(returned: object) -> dict[str, float]:
    """The result of `evaluate`; raises EnvironmentFailed unless it is finite numbers by their names."""
    if not isinstance(returned, Mapping):
        raise EnvironmentFailed(f"evaluate returned {returned!r:.200}: return numbers by their names")
    for name, value in returned.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise EnvironmentFailed(
                f"evaluate returned {value!r:.200} as {name!r:.200}: return finite numbers"
            )
    return {str(name): float(value) for name, value in returned.items()}


def checked_reward(returned: object) -> Reward:
    """The result of `compute_reward` as a Reward; raises EnvironmentFailed unless it is a finite number."""
    reward = returned
    if isinstance(returned, int | float):
        reward = Reward(score=returned)
    if not isinstance(reward, Reward):
        raise EnvironmentFailed(f"compute_reward returned {returned!r}: return a number or a Reward")
    if not math.isfinite(reward.score):
        raise EnvironmentFailed(f"compute_reward returned {reward.score}: a reward must be finite")
    for name in reward.artifacts:
        if name.startswith("/") or ".." in name.split("/"):
            raise EnvironmentFailed(
                f"compute_reward returned an artifact named {name!r:.200}: give a relative path"
            )
    if (size := sum(map(len, reward.artifacts.values()))) > MOST_ARTIFACTS:
        raise EnvironmentFailed(f"compute_reward returned {size} bytes of artifacts, over {MOST_ARTIFACTS}")
    return reward
