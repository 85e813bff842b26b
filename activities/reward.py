"""Verification: the environment's `compute_reward` over the rollout's own workspace."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from temporalio import activity

from activities.claims import WorkClaims
from activities.guard import activity_guard
from activities.restore import journalled_parts
from activities.sandbox import Sandboxes
from activities.verification import EpochSandboxes
from clotho import failpoints
from clotho.environment import AgentResult, Reward
from clotho.environment.instances import Environments
from clotho.environment.numbered_calls import CountedCalls, JournalledCalls
from clotho.environment.tools import EnvironmentTools
from clotho.environment.workspace import Workspace
from clotho.errors import (
    CommandConflict,
    EnvironmentFailed,
    GradingRepeatedlyLost,
    GradingSandboxLost,
    SandboxLost,
    VerificationFailed,
    WorkspaceRefused,
)
from clotho.escaping import truncate_middle
from clotho.failure_policy import kind_of, policy_for
from clotho.identifiers.keys import (
    epoch_answers_prefix,
    epoch_prefix,
    raised_prefix,
    reward_key,
    verification_claims_prefix,
)
from clotho.journal import Journal
from clotho.rollouts.artifacts import keep_artifacts
from clotho.rollouts.group import read_tools
from clotho.rollouts.outcome import Outcome
from clotho.rollouts.run import RunManifest
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.rollouts.verification import (
    EpochEntry,
    RaisedEntry,
    RewardEntry,
    RewardRequest,
    RewardResult,
)
from clotho.run_settings import OnRewardError
from clotho.runs.manifest import read_manifest
from clotho.tools.dispatch import Dispatcher

GRADINGS_EXHAUSTED = 3
"""Sandboxes for grading that a rollout's verification may use up: what the agent left would use up every one."""
GRADINGS_LOST = 5
"""Sandboxes for grading that a rollout's verification may lose, whatever ended them: each is paid for."""
FAILURES_BEFORE_CONTROL = 2
"""Failures of a task's verifier after which it is tried without the agent's files: once may be a flake."""
MOST_CONFLICTS = 5
"""Epochs in which nothing failed but that the author's code took another way than in the attempt before."""


class Verifier:
    """Activities that run the environment author's verification, where the sandbox lives."""

    def __init__(
        self,
        journal: Journal,
        environments: Environments,
        sandboxes: Sandboxes,
        tools: EnvironmentTools,
        claims: WorkClaims,
    ) -> None:
        self._journal = journal
        self._claims = claims
        self._environments = environments
        self._sandboxes = sandboxes
        self._tools = tools

    @activity.defn
    async def verify(self, request: RewardRequest) -> RewardResult:
        """Score a rollout, or find its score in the journal."""
        key = reward_key(request.rollout)
        async with activity_guard(
            request.rollout,
            on_cancel=lambda: self._journal.cancel_flight(key),
            queue=self._claims.queue,
        ):
            raised = raised_prefix(request.rollout, activity.info().workflow_run_id or "")
            entry = await self._journal.once(key, RewardEntry, lambda: self._verify(request, raised))
            await failpoints.reach("reward.journalled", key)
        return RewardResult(score=entry.score, lease=entry.lease)

    async def _verify(self, request: RewardRequest, raised: str) -> RewardEntry:
        """Verify in the current epoch, or in new ones while the author's code takes another way than before.

        The verifier's exceptions are journalled under the prefix `raised`; after the last attempt that they are
        allowed, the reward is 0, if the run's settings say so.
        """
        if request.exhausted is not None:
            return await self._given_up(request, request.exhausted)
        if request.lease is not None:
            await self._sandboxes.require_current_lease(request.rollout, request.lease.number)
        # Before anything is read or checkpointed: its number fences off a former process that is still at work.
        claim = await self._claims.take(verification_claims_prefix(request.rollout))
        manifest = await read_manifest(self._journal, request.run)
        environment = await self._environments.get(manifest)
        offered = await read_tools(self._journal, request.rollout)
        dispatcher = await self._tools.dispatcher(manifest, offered.tools)
        transcript = await read_transcript(self._journal, request.rollout, request.turns)
        if request.lease is not None:
            left = (request.rollout, request.lease.number, manifest.checkpoint_mb)
            await self._sandboxes.checkpoint_as_left(*left, request.shell, request.checkpoint)
        lease = request.lease
        while True:
            given_up = await self._epochs_given_up(request.rollout)
            exhausted = [each.exhausted for each in given_up if each.exhausted is not None]
            if len(exhausted) >= GRADINGS_EXHAUSTED:
                return await self._given_up(request, exhausted[-1])
            require_gradings_left(given_up)
            require_same_way(given_up)
            sandboxes = EpochSandboxes(
                self._journal,
                self._sandboxes,
                request,
                environment,
                transcript.prompt,
                given_up,
                claim,
                lease,
            )
            entry = await self._verify_in_epoch(sandboxes, manifest, dispatcher, transcript, raised)
            if entry is not None:
                return entry
            lease = sandboxes.lease  # an epoch may have opened the first sandbox of its rollout

    async def _verify_in_epoch(
        self,
        sandboxes: EpochSandboxes,
        manifest: RunManifest,
        dispatcher: Dispatcher,
        transcript: Transcript,
        raised: str,
    ) -> RewardEntry | None:
        """The reward of an epoch; None where the epoch was given up for the next one."""
        request, lease, epoch = sandboxes.request, sandboxes.lease, sandboxes.epoch
        answers = epoch_answers_prefix(request.rollout, epoch, 0 if lease is None else lease.number)
        calls = await JournalledCalls.read(self._journal, answers)
        workspace = self._workspace(sandboxes, manifest, dispatcher, calls)
        clock, failed, refused, voided = time.monotonic(), None, None, None
        try:
            reward = await self._reward(
                sandboxes, transcript, workspace, calls, manifest.verification_seconds
            )
            if reward is None:
                return None
        except WorkspaceRefused as refusal:
            reward, refused = Reward(score=0.0), truncate_middle(str(refusal))
        except EnvironmentFailed as failure:
            # Journalled before it is judged: attempts are counted across processes, and outages aren't among them.
            exception = RaisedEntry(reason=truncate_middle(str(failure)))
            failure.times = await self._journal.append(raised, exception) + 1
            last = policy_for(kind_of(failure)).is_last(failure.times)
            # before the run's setting: an agent that breaks its verifier earns 0 in every run
            if await _blames_agent(failure, sandboxes, workspace, manifest.verification_seconds):
                voided = exception.reason
            elif last and manifest.on_reward_error is OnRewardError.ZERO:
                failed = exception.reason
            else:
                raise
            reward = Reward(score=0.0)
        finally:
            await workspace.close()
        # not where it raised: the next attempt goes on with the same epoch, in its sandboxes
        await sandboxes.close()
        return RewardEntry(
            score=reward.score,
            breakdown=reward.breakdown,
            log=reward.log,
            artifacts=await keep_artifacts(self._journal, request.run, reward.artifacts),
            lease=sandboxes.lease,
            epoch=epoch,
            claim=sandboxes.claim,
            seconds=time.monotonic() - clock,
            error=failed,
            verifier_failed=voided,
            refused=refused,
            in_agents_instance=sandboxes.keep_services,
            code=sandboxes.environment.fingerprint,
        )

    def _workspace(
        self,
        sandboxes: EpochSandboxes,
        manifest: RunManifest,
        dispatcher: Dispatcher,
        calls: JournalledCalls,
    ) -> Workspace:
        """The workspace of the author's code, which opens the epoch's sandboxes when it first needs them."""
        rollout = sandboxes.request.rollout
        return Workspace(
            rollout=rollout,
            place=("verify", sandboxes.epoch),
            open=sandboxes.open,
            open_to_read=partial(sandboxes.open, only_reads=True),
            dispatcher=dispatcher,
            tools=dispatcher.names,
            settings=manifest.tool_settings,
            once=journalled_parts(self._journal, rollout, "verify"),
            start=sandboxes.start,
            open_grading=sandboxes.open_grading,
            calls=calls,
        )

    async def _reward(
        self,
        sandboxes: EpochSandboxes,
        transcript: Transcript,
        workspace: Workspace,
        calls: JournalledCalls,
        seconds: float,
    ) -> Reward | None:
        """The reward of the author's code; None where it took another way than before.

        That and a lost sandbox end the epoch. Its end is journalled first, so that the next attempt begins another
        one.
        """
        try:
            reward = await _score(sandboxes, transcript, workspace, seconds)
            calls.require_all_made()
        except CommandConflict as conflict:
            await self._give_up(sandboxes, EpochFailure(str(conflict), conflict=True))
            return None
        except GradingSandboxLost as lost:
            await self._give_up(sandboxes, EpochFailure(str(lost), lost.exhausted, grading_lost=True))
            raise
        except SandboxLost as lost:
            own = sandboxes.has_own  # then the agent's is still there, and the rollout has lost none
            await self._give_up(
                sandboxes, EpochFailure(str(lost), lost.exhausted if own else None, grading_lost=own)
            )
            if own:
                raise GradingSandboxLost(str(lost), lost.exhausted) from lost
            raise
        return reward

    async def _epochs_given_up(self, rollout: str) -> list[EpochEntry]:
        keys = await self._journal.keys(epoch_prefix(rollout))
        return [each for each in await self._journal.read_many(keys, EpochEntry) if each is not None]

    async def _give_up(self, sandboxes: EpochSandboxes, failure: "EpochFailure") -> None:
        """End an epoch, unless another process has taken the verification over."""
        rollout = sandboxes.request.rollout
        await self._claims.require(verification_claims_prefix(rollout), sandboxes.claim)
        entry = EpochEntry(
            reason=failure.reason,
            lease=None if sandboxes.lease is None else sandboxes.lease.number,
            claim=sandboxes.claim,
            conflict=failure.conflict,
            exhausted=failure.exhausted,
            grading_lost=failure.grading_lost,
        )
        await self._journal.append(epoch_prefix(rollout), entry)
        await sandboxes.close()

    async def _given_up(self, request: RewardRequest, exhausted: str) -> RewardEntry:
        """The score of a rollout whose verification exhausts its sandbox each time: 0."""
        return RewardEntry(
            score=0.0,
            breakdown={},
            log="",
            lease=request.lease,
            epoch=len(await self._journal.keys(epoch_prefix(request.rollout))),
            seconds=0.0,
            refused=f"verification ran out of {exhausted} and lost its sandbox each time",
        )


async def _score(
    sandboxes: EpochSandboxes, transcript: Transcript, workspace: Workspace, seconds: float
) -> Reward:
    """The reward of the author's code; raises a failure that its context met, whatever the code made of it."""
    environment, item = sandboxes.environment, sandboxes.item
    result = agent_result(sandboxes.request, transcript)
    try:
        reward = await environment.compute_reward(item, result, workspace, seconds)
    except (EnvironmentFailed, WorkspaceRefused):
        # the author's code may have wrapped what its context raised, which then isn't its own failure
        if (cause := workspace.failure or workspace.refused) is not None:
            raise cause from None
        raise
    # that code may also have caught it: a reward that is computed without the answer is none
    if workspace.failure is not None:
        raise workspace.failure
    return reward


async def _blames_agent(
    failure: EnvironmentFailed, sandboxes: EpochSandboxes, workspace: Workspace, seconds: float
) -> bool:
    """Whether the agent made its task's verifier fail, which is tried without its files after two failures."""
    if not isinstance(failure, VerificationFailed) or (failure.times or 0) < FAILURES_BEFORE_CONTROL:
        return False
    control = control_calls(workspace, sandboxes)
    return await sandboxes.environment.blames_agent(sandboxes.item, control, seconds)


@dataclass(frozen=True)
class EpochFailure:
    """The end of an epoch without a reward."""

    reason: str
    exhausted: str | None = None
    conflict: bool = False
    grading_lost: bool = False


def control_calls(workspace: Workspace, sandboxes: EpochSandboxes) -> Workspace:
    """The workspace of a control: `grading` is a sandbox of its own, and the journal answers no calls."""
    return replace(
        workspace,
        place=(*workspace.place, "control"),
        open_grading=sandboxes.open_control,
        calls=CountedCalls(),
        failure=None,
        refused=None,
        state={},
        _grading=None,
    )


def require_gradings_left(given_up: Sequence[EpochEntry]) -> None:
    """Raises GradingRepeatedlyLost after GRADINGS_LOST epochs that lost a sandbox beside the agent's."""
    if (lost := sum(each.grading_lost for each in given_up)) >= GRADINGS_LOST:
        raise GradingRepeatedlyLost(f"{lost} sandboxes for grading were lost, at last: {given_up[-1].reason}")


def require_same_way(given_up: Sequence[EpochEntry]) -> None:
    """Raises EnvironmentFailed after MOST_CONFLICTS epochs in which nothing failed but that the author's code
    took another way each time."""
    last = list(
        takewhile(lambda each: each.conflict and each.claim == given_up[-1].claim, reversed(given_up))
    )
    if len(last) >= MOST_CONFLICTS:
        raise EnvironmentFailed(f"compute_reward differs each time it is called: {last[0].reason}")


def agent_result(request: RewardRequest, transcript: Transcript) -> AgentResult:
    return AgentResult(
        messages=[message.wire() for message in transcript.messages],
        turns_used=request.turns,
        finished_naturally=request.ending.outcome is Outcome.COMPLETED,
        reasoning_per_turn=list(transcript.reasoning),
        tool_errors=list(transcript.tool_errors),
    )
