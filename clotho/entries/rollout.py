"""What the journal holds of a rollout: its prompt, its turns and calls, its sandboxes, and its end."""

from pydantic import JsonValue

from clotho.entries.items import Item
from clotho.inference.base import CallDefects, ChatMessage, SampledTurn, ToolCall, VersionSpan
from clotho.records.base import Record
from clotho.records.lease import Fidelity, Lease
from clotho.records.rollout import RolloutSummary
from clotho.sandbox.checkpoints import Checkpoint


class Prompt(Record):
    """What a rollout starts from."""

    item: Item
    messages: tuple[ChatMessage, ...]
    seed: int
    workspace_files: dict[str, str] = {}
    """Path -> base64 content, put into the sandbox before the first command."""


class TurnEntry(Record):
    """A sampled turn, or the finding that the prompt no longer fits."""

    sampled: SampledTurn | None
    context_overflow: str | None = None
    """The model server's words."""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.sampled.message.tool_calls if self.sampled is not None else ()

    @property
    def defects(self) -> CallDefects:
        return self.sampled.defects if self.sampled is not None else CallDefects()


class StreamEntry(Record):
    """Tokens of a turn that arrived before it ended: what it is continued from."""

    offset: int
    """Of the first of `ids` among the turn's."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampling_mask: tuple[tuple[int, ...], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    """In a turn's first entry."""
    resumed_at: tuple[int, ...] = ()
    """Where the turn had been resumed until then."""
    versions: tuple[VersionSpan, ...] = ()
    """Of the turn's tokens until then, as far as the server said."""
    known_version: str | None = None
    """What the server's weights were when they were last heard of before these tokens were asked for."""
    trainer_step: int | None = None
    """The trainer's, as known when these tokens were asked for."""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    started: float
    seconds: float
    """Of active sampling until then."""


class ToolError(Record):
    """A failed tool call as an environment's author and the metrics see it."""

    turn: int
    tool_name: str
    arguments: str
    error: str
    tool_result: str


class CallEntry(Record):
    """A tool call that was made, and what the model is shown of it."""

    tool: str
    content: str
    error: ToolError | None
    state: dict[str, JsonValue]
    lease: int | None
    """The number of the lease in whose sandbox it was made."""
    started: float
    seconds: float
    changes: bool
    """It may have changed the sandbox, as its tool declares: what follows a lost one needs it again."""
    spilled: bool = False
    """What the model is shown is the beginning of a file in the sandbox."""
    exit_code: int | None = None
    """Of its command, where there was one. A replay is judged by it, and by whether the result names an error."""
    troubled: bool = False
    checkpoint: Checkpoint | None = None
    """Of the sandbox after this call; the blob is beside the entry."""
    manifest: str | None = None
    """Digest of the workspace after this call, where no checkpoint was taken."""


class CheckpointEntry(Record):
    """The sandbox as it was before verification; None where none could be taken."""

    checkpoint: Checkpoint | None


class LeaseEntry(Record):
    """Which sandbox a lease is."""

    incarnation: str
    queue: str
    """Of the host it is on."""
    system: str
    """Of that host, as sandboxes see it: its release and packages, as a fingerprint."""
    fidelity: Fidelity | None = None
    """How well it was restored, where it follows a lost one."""
    made: str = ""
    """The last call whose effect it started with, by a checkpoint or by a replay."""
    shell: str | None = None
    """The job, in this sandbox, that left the shell as it was when the last of these had been made."""


class EpochEntry(Record):
    """An attempt at verification was given up; the next one has keys of its own."""

    reason: str


class RewardEntry(Record):
    score: float
    breakdown: dict[str, float]
    log: str
    lease: Lease | None
    epoch: int
    seconds: float
    error: str | None = None
    """How the verifier failed, where the score is 0 for that reason alone."""
    refused: str | None = None
    """How what the agent left kept the verifier from its work, where the score is 0 for that reason alone."""
    in_agents_instance: bool = False
    """It was verified beside the agent's own processes, which the environment asked to keep."""


class EndEntry(Record):
    """The end of a scored rollout."""

    summary: RolloutSummary
