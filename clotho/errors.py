"""The errors that Clotho raises, as one tree; `clotho.failure_policy` says what is done about each.

ClothoError
├── InvalidInput            names, configuration, items, fingerprints: the user can correct it
│   ├── EnvironmentUnknown  the environment isn't on this host
│   └── LeaseElsewhere      the lease's sandbox lives on another host
├── ModelRejected           a permanent refusal of the model server: 401, 403, unknown model
├── ServiceRejected         a service that a tool uses refuses for good: no key, or a wrong one
├── InexactTokens           a server's tokens can't be trained on: ids or logprobs missing, or not finite
├── ContextOverflow         the prompt no longer fits the model: an outcome of a rollout, not a failure
├── JournalCorrupt          an entry is damaged, or not Clotho's; names the key
├── IsolationUnavailable    this machine can't prove the isolation that was asked for
├── CommandConflict         a job key already holds another command
├── FileRefused             the sandbox can't write that path
│   └── WorkspaceRefused    the agent made a path unusable to its verifier: scored 0
├── SandboxLost             the sandbox is gone, or a command was running in one that is
│   ├── SandboxFenced       the lease was superseded; the sandbox may be alive
│   └── SandboxDisrupted    commands keep it from serving
├── SandboxDiverged         a restored sandbox differs from the lost one
├── GradingRepeatedlyLost   every sandbox of a separate verifier was lost
├── VerificationUnrepeatable  verification has to begin anew, and the agent's last state can't be had again
├── SandboxUnhealthy        a new sandbox's healthcheck never passed
├── GroupRejected           a finished group that must not be trained on; says why
├── EnvironmentFailed       an exception from the author's code
│   └── VerificationFailed  a task's verifier left no reward that can be read
└── Unavailable             an outage
    ├── ModelUnavailable    429, 5xx, time-outs, dropped connections; carries Retry-After
    │   └── TokenizerUnavailable  its hub can't be reached, and this machine has none of its files
    ├── ServiceUnavailable  429, 5xx and time-outs of a service that a tool uses; carries Retry-After
    ├── StoreUnavailable
    ├── SandboxUnavailable
    │   └── GradingSandboxLost  the sandbox of a separate verifier is gone: verified again in a new one
    ├── TakenOver           another process has taken this work over: what this one still asks for has no effect
    └── HostUnavailable     this machine is out of descriptors, memory, threads or disk, or its disk fails
"""

from datetime import timedelta
from enum import StrEnum


class ClothoError(Exception):
    """Base of every error that Clotho raises on purpose."""


class InvalidInput(ClothoError):
    """The request can't be served as it is; the message says what to change."""


class EnvironmentUnknown(InvalidInput):
    """The environment isn't on this host; the message names those that are."""


class LeaseElsewhere(InvalidInput):
    """The lease's sandbox lives on another host, which serves `queue`."""

    def __init__(self, message: str, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class ModelRejected(ClothoError):
    """The model server refuses for good: authentication, permission, or an unknown model."""


class ServiceRejected(ClothoError):
    """A service that a tool uses refuses for good: a key is missing or wrong."""


class InexactTokens(ClothoError):
    """A model server's report of what it sampled is incomplete or contradicts itself."""


class ContextOverflow(ClothoError):
    """The prompt doesn't fit the model's context."""


class JournalCorrupt(ClothoError):
    """An entry that fails its checks; the message names its key."""


class IsolationUnavailable(ClothoError):
    """The isolation asked for can't be proved on this machine."""


class CommandConflict(ClothoError):
    """A job key already holds a different command."""


class FileRefused(ClothoError):
    """A path that the sandbox's user can't write; the message says why."""


class WorkspaceRefused(FileRefused):
    """A path in the agent's folders that the agent made unusable to its verifier.

    A verifier may catch it and score the rollout; else the score is 0.
    """


class SandboxLost(ClothoError):
    """The sandbox of a lease is gone, or was replaced by another incarnation.

    `exhausted` names the resource that a command had used up when the sandbox ended, if it was the command's doing.
    """

    def __init__(self, message: str, exhausted: str | None = None) -> None:
        super().__init__(message)
        self.exhausted = exhausted


class SandboxFenced(SandboxLost):
    """The lease was superseded: the rollout goes on in the sandbox of the next one."""


class SandboxDisrupted(SandboxLost):
    """Commands keep the sandbox from serving: they kill its requests for files, or close its outputs to it."""


class SandboxDiverged(ClothoError):
    """A restored sandbox differs from the lost one, and the run keeps no such rollouts."""


class GradingRepeatedlyLost(ClothoError):
    """A verification lost each of its sandboxes for grading; the message says how the last one was lost."""


class VerificationUnrepeatable(ClothoError):
    """Verification has to begin anew, and nothing holds the workspace as the agent left it; says why."""


class SandboxUnhealthy(ClothoError):
    """The healthcheck of a new sandbox never passed; the message names it."""


class Rejection(StrEnum):
    """Every reason for which a group isn't trained on, and the functions that raise GroupRejected with it.

    The functions named `check_…` are in clotho/training/fitness.py. The adapter is the one of Atropos
    (clotho/plugins/atropos/), whose `check_deliverable` is in its admission.py.
    """

    INCOMPLETE = "incomplete"
    """The number of scored rollouts isn't the one asked for: `check_whole`."""
    CHAT_MODE = "chat_mode"
    """A turn was sampled without tokens: `check_sampled`."""
    NOTHING_SAMPLED = "nothing_sampled"
    """No rollout sampled a token: `check_sampled`."""
    NON_FINITE = "non_finite"
    """A reward or a logprob is no number: `check_whole`, `check_logprobs`, the adapter's `TrainerApi.send`."""
    BIASED = "biased"
    """Logprobs aren't known to be of the distribution sampled from: `check_logprobs`."""
    OVER_LENGTH = "over_length"
    """A row is longer than the trainer takes: `check_lengths`, the adapter's `check_deliverable`."""
    STALE = "stale"
    """Its weights, or its item, are too many steps old: `check_age`, the adapter's `drop_stale`."""
    UNKNOWN_VERSION = "unknown_version"
    """A bound on its age is set, and a token's weight version isn't known: `check_age`."""
    EXCLUDED = "excluded"
    """Disturbances that the trainer excludes: `Exclusion.mask_excluded` (clotho/training/siblings.py)."""
    CORRUPT = "corrupt"
    """A journal entry is damaged: `training_groups`, the adapter's `AdapterRun.collect`, `OrderedRun.answer`."""
    ENVIRONMENT_FAILED = "environment_failed"
    """The author's code failed: `Groups.until_scored` (clotho/runs/group_workflows.py), the adapter's sweeper. It
    may refuse a group itself: `error_of` (clotho/environment/channel.py)."""
    INFRASTRUCTURE = "infrastructure"
    """Its workflow failed too often: `Groups.until_scored`, by the policy's `dropped_as`."""
    CANCELLED = "cancelled"
    """Its workflow was cancelled or terminated: `Groups.until_scored`. A trainer asked so: `OrderedRun.cancel`."""
    WITHHELD = "withheld"
    """The environment's hooks returned no rows: the adapter's `check_deliverable`."""
    WRONG_SIZE = "wrong_size"
    """The hooks returned another number of rows: the adapter's `check_deliverable`."""
    SAME_SCORES = "same_scores"
    """All scores are equal, and the trainer wants them to differ: the adapter's `check_deliverable`."""
    REFUSED = "refused"
    """Atropos' API answered 4xx: the adapter's `TrainerApi.send`."""


class GroupRejected(ClothoError):
    """A group that must not be trained on."""

    def __init__(self, reason: Rejection, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class EnvironmentFailed(ClothoError):
    """The environment author's code raised; the message carries its traceback."""

    times: int | None = None
    """How often it has raised at this step, where outages between are not counted; None: once in each attempt."""


class VerificationFailed(EnvironmentFailed):
    """A task's verifier left no reward that can be read: the rollout has none, which is not a reward of 0."""


class Unavailable(ClothoError):
    """An outage of something that Clotho depends on."""

    retry_after: timedelta | None = None


class ModelUnavailable(Unavailable):
    """The model server can't answer now; `throttled`: it has more requests than it takes."""

    def __init__(
        self, message: str, retry_after: timedelta | None = None, *, throttled: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.throttled = throttled


class TokenizerUnavailable(ModelUnavailable):
    """A tokenizer isn't on this machine, and can't be fetched now."""


class ServiceUnavailable(Unavailable):
    """A service that a tool uses, such as a search provider, can't answer now."""

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreUnavailable(Unavailable):
    """The store can't be read or written now."""


class SandboxUnavailable(Unavailable):
    """The sandbox backend can't answer now."""


class GradingSandboxLost(SandboxUnavailable):
    """A verifier's own sandbox, beside the agent's, is gone; the agent's is still there.

    `exhausted` is as in SandboxLost.
    """

    def __init__(self, message: str, exhausted: str | None = None) -> None:
        super().__init__(message)
        self.exhausted = exhausted


class TakenOver(Unavailable):
    """Another process has taken a piece of work over, and raised the fence of its sandbox."""


class HostUnavailable(Unavailable):
    """The machine that this process runs on can't serve now."""
