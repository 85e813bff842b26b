"""Verification: the environment's `compute_reward` over the rollout's own workspace."""

import logging
import time
from dataclasses import dataclass
from functools import partial

from temporalio import activity

from activities.guard import activity_guard
from activities.restore import journalled_parts
from activities.sandbox import Sandboxes
from clotho import failpoints
from clotho.environment import AgentResult, Reward
from clotho.environment.handles import EnvironmentHandle, infrastructure_wait
from clotho.environment.instances import Environments
from clotho.environment.tools import EnvironmentTools
from clotho.environment.workspace import Workspace
from clotho.errors import (
    CommandConflict,
    EnvironmentFailed,
    GradingRepeatedlyLost,
    GradingSandboxLost,
    SandboxLost,
    Unavailable,
    WorkspaceRefused,
    truncate_middle,
)
from clotho.failure_policy import kind_of, policy_for
from clotho.identifiers.hashed import job_key
from clotho.identifiers.rollout_keys import epoch_prefix, final_key, raised_prefix, reward_key
from clotho.journal import Journal
from clotho.rollouts.artifacts import keep_artifacts
from clotho.rollouts.item import Item
from clotho.rollouts.lease import CheckpointEntry, Lease, LeaseRequest
from clotho.rollouts.offers import read_tools
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
from clotho.run_settings import CheckpointPolicy, OnRewardError
from clotho.runs.manifest import read_manifest
from clotho.sandbox.backend import WORKSPACE, SandboxInstance
from clotho.sandbox.verification import VerifierSetup

log = logging.getLogger("clotho")

GRADINGS_EXHAUSTED = 3
"""Sandboxes for grading that a rollout's verification may use up: what the agent left would use up every one."""
GRADINGS_LOST = 5
"""Sandboxes for grading that a rollout's verification may lose, whatever ended them: each is paid for."""


class Verifier:
    """Activities that run the environment author's verification, where the sandbox lives."""

    def __init__(
        self,
        journal: Journal,
        environments: Environments,
        sandboxes: Sandboxes,
        tools: EnvironmentTools,
    ) -> None:
        self._journal = journal
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
            queue=self._sandboxes.queue,
        ):
            raised = raised_prefix(request.rollout, activity.info().workflow_run_id or "")
            entry = await self._journal.once(key, RewardEntry, lambda: self._verify(request, raised))
            await failpoints.reach("reward.journalled", key)
        return RewardResult(score=entry.score, lease=entry.lease)

    async def _verify(self, request: RewardRequest, raised: str) -> RewardEntry:
        """Verify in the current epoch, or a new one if this attempt's commands differ from the last one's.

        The verifier's exceptions are kept under the prefix `raised`; after the last that is borne the reward is 0,
        if the run is set so.
        """
        if request.exhausted is not None:
            return await self._given_up(request, request.exhausted)
        if request.lease is not None:
            await self._sandboxes.held(request.rollout, request.lease.number)
        manifest = await read_manifest(self._journal, request.run)
        environment = await self._environments.get(manifest)
        offered = await read_tools(self._journal, request.rollout)
        dispatcher = await self._tools.dispatcher(manifest, offered.tools)
        transcript = await read_transcript(self._journal, request.rollout, request.turns)
        verification = Verification(self._sandboxes, request, environment, transcript.prompt.item)
        await self._checkpoint(request, manifest)
        while True:
            given_up = await self._epochs_given_up(request.rollout)
            exhausted = [each.exhausted for each in given_up if each.exhausted is not None]
            if len(exhausted) >= GRADINGS_EXHAUSTED:
                return await self._given_up(request, exhausted[-1])
            if (lost_ones := sum(each.grading_lost for each in given_up)) >= GRADINGS_LOST:
                raise GradingRepeatedlyLost(
                    f"{lost_ones} sandboxes for grading were lost, at last: {given_up[-1].reason}"
                )
            epoch = len(given_up)
            workspace = Workspace(
                rollout=request.rollout,
                place=("verify", epoch),
                open=partial(verification.open, epoch),
                open_to_read=partial(verification.open, epoch, only_reads=True),
                dispatcher=dispatcher,
                tools=dispatcher.names,
                settings=manifest.tool_settings,
                once=journalled_parts(self._journal, request.rollout, "verify"),
                start=verification.start(epoch),
                open_grading=partial(verification.open_grading, epoch),
            )
            clock, failed, refused = time.monotonic(), None, None
            try:
                reward = await _score(verification, transcript, workspace, manifest.verification_seconds)
            except CommandConflict as conflict:
                await self._journal.append(epoch_prefix(request.rollout), EpochEntry(reason=str(conflict)))
                continue
            except SandboxLost as lost:
                await self._journal.append(epoch_prefix(request.rollout), EpochEntry(reason=str(lost)))
                raise
            except GradingSandboxLost as lost:
                entry = EpochEntry(reason=str(lost), exhausted=lost.exhausted, grading_lost=True)
                await self._journal.append(epoch_prefix(request.rollout), entry)
                raise
            except WorkspaceRefused as refusal:
                reward, refused = Reward(score=0.0), truncate_middle(str(refusal))
            except EnvironmentFailed as failure:
                exception = RaisedEntry(reason=truncate_middle(str(failure)))
                failure.times = await self._journal.append(raised, exception) + 1
                last = policy_for(kind_of(failure)).is_last(failure.times)
                if not last or manifest.on_reward_error is not OnRewardError.ZERO:
                    raise
                reward, failed = Reward(score=0.0), truncate_middle(str(failure))
            finally:
                await verification.close_grading(epoch)
            return RewardEntry(
                score=reward.score,
                breakdown=reward.breakdown,
                log=reward.log,
                artifacts=await keep_artifacts(self._journal, request.run, reward.artifacts),
                lease=verification.lease,
                epoch=epoch,
                seconds=time.monotonic() - clock,
                error=failed,
                refused=refused,
                in_agents_instance=environment.config.keep_services,
                code=environment.fingerprint,
            )

    async def _epochs_given_up(self, rollout: str) -> list[EpochEntry]:
        keys = await self._journal.keys(epoch_prefix(rollout))
        return [each for each in await self._journal.read_many(keys, EpochEntry) if each is not None]

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

    async def _checkpoint(self, request: RewardRequest, manifest: RunManifest) -> None:
        """Checkpoint the sandbox as the agent left it, to verify again if it is lost."""
        if request.lease is None or manifest.checkpoints is CheckpointPolicy.OFF:
            return
        number = request.lease.number

        async def take() -> CheckpointEntry:
            sandbox = await self._sandboxes.attach(request.rollout, number)
            shell = await self._sandboxes.shell_left(request.rollout, request.shell, number)
            taken = await self._sandboxes.checkpoint(
                request.rollout, sandbox, manifest.checkpoint_mb, shell, request.checkpoint
            )
            return CheckpointEntry(checkpoint=taken)

        await self._journal.once(final_key(request.rollout), CheckpointEntry, take)


async def _score(
    verification: "Verification", transcript: Transcript, workspace: Workspace, seconds: float
) -> Reward:
    """The reward of the author's code, unless what its context met says otherwise."""
    environment, item = verification.environment, verification.item
    result = agent_result(verification.request, transcript)
    try:
        reward = await environment.compute_reward(item, result, workspace, seconds)
    except (EnvironmentFailed, WorkspaceRefused):
        if (cause := workspace.failure or workspace.refused) is not None:
            raise cause from None
        raise
    if workspace.failure is not None:
        raise workspace.failure
    return reward


@dataclass
class Verification:
    """The verification of one rollout; it opens at most one sandbox instance per epoch."""

    sandboxes: Sandboxes
    request: RewardRequest
    environment: EnvironmentHandle
    item: Item

    def __post_init__(self) -> None:
        self.lease = self.request.lease
        self.grading = False

    async def open(self, epoch: int, only_reads: bool = False) -> SandboxInstance:
        """The epoch's instance, or one to read the agent's files in."""
        with infrastructure_wait():
            return await self._open(epoch, only_reads)

    async def _open(self, epoch: int, only_reads: bool) -> SandboxInstance:
        rollout = self.request.rollout
        number = (await self._leased()).number
        hidden = await self.environment.hidden_files(self.item)
        config = self.environment.config
        setup = VerifierSetup(
            start=self.start(epoch),
            after=None
            if config.verifier_cwd is not None
            else await self.sandboxes.shell_left(rollout, self.request.shell, number),
            directory=config.verifier_cwd or WORKSPACE,
            trust_workspace=config.trust_workspace,
            only_reads=only_reads,
        )
        if config.keep_services and hidden:
            raise EnvironmentFailed("keep_services: hidden files would be seen by the agent's processes")
        instance = await self.sandboxes.open_verifier(
            rollout, number, epoch, hidden, setup, in_place=config.keep_services
        )
        await failpoints.reach("reward.opened", reward_key(rollout))
        return instance

    async def open_grading(self, epoch: int) -> SandboxInstance:
        """The epoch's sandbox that has nothing of the agent's."""
        asked = await self.environment.grading_sandbox(self.item)
        if asked is None:
            raise EnvironmentFailed("ctx.grading: grading_sandbox of the environment gives no sandbox")
        lease = await self._leased()
        self.grading = True
        with infrastructure_wait():
            return await self.sandboxes.open_grading(
                self.request.run, self.request.rollout, lease.number, epoch, asked
            )

    async def close_grading(self, epoch: int) -> None:
        """Destroy the sandbox that graded the epoch; one that can't be destroyed now ends with its lease."""
        if self.grading and self.lease is not None:
            self.grading = False
            try:
                await self.sandboxes.close_grading(self.request.rollout, self.lease.number, epoch)
            except Unavailable as error:
                log.warning("a sandbox for grading is left to the end of its lease: %s", error)

    async def _leased(self) -> Lease:
        """A rollout that ran no command gets its first sandbox here."""
        if self.lease is None:
            request = LeaseRequest(rollout=self.request.rollout)
            self.lease = await self.sandboxes.lease(request)
        return self.lease

    def start(self, epoch: int) -> str:
        """Key of the job that leaves the starting directory of an epoch."""
        return job_key(self.request.rollout, "verify", epoch, "start")


def agent_result(request: RewardRequest, transcript: Transcript) -> AgentResult:
    return AgentResult(
        messages=[message.wire() for message in transcript.messages],
        turns_used=request.turns,
        finished_naturally=request.ending.outcome is Outcome.COMPLETED,
        reasoning_per_turn=list(transcript.reasoning),
        tool_errors=list(transcript.tool_errors),
    )
