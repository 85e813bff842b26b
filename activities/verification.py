"""The sandboxes of a rollout's verification: each epoch begins from what the agent left."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from activities.sandbox import Sandboxes
from clotho import failpoints
from clotho.environment.handles import EnvironmentHandle, infrastructure_wait
from clotho.errors import EnvironmentFailed, GradingSandboxLost, Unavailable, VerificationUnrepeatable
from clotho.identifiers.ids import job_key
from clotho.identifiers.keys import (
    control_key,
    grading_key,
    opened_key,
    reward_key,
    verification_key,
)
from clotho.journal import Journal
from clotho.rollouts.item import Item
from clotho.rollouts.lease import Lease, LeaseRequest
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.verification import EpochEntry, OpenedEntry, RewardRequest
from clotho.sandbox.backend import WORKSPACE, SandboxInstance
from clotho.sandbox.verification import VerifierSetup

AS_LEFT, GRADING, CONTROL = "as-left", "grading", "control"
"""Kinds of sandboxes that an epoch has beside the agent's."""

log = logging.getLogger("clotho")


@dataclass
class EpochSandboxes:
    """The sandboxes of one epoch of a rollout's verification, opened when its author's code first needs them.

    The first epoch works in the agent's sandbox. Once an epoch may have changed that one, the next has a sandbox of
    its own, restored from the checkpoint before verification. `claim` is the fence that the epoch works under.
    """

    journal: Journal
    sandboxes: Sandboxes
    request: RewardRequest
    environment: EnvironmentHandle
    prompt: Prompt
    given_up: Sequence[EpochEntry]
    claim: int
    lease: Lease | None
    _opened: dict[str, str] = field(default_factory=dict)
    """Kind -> key of the sandboxes beside the agent's."""

    @property
    def epoch(self) -> int:
        return len(self.given_up)

    @property
    def item(self) -> Item:
        return self.prompt.item

    @property
    def keep_services(self) -> bool:
        """Whether the agent's processes stay: as the item says, else the run."""
        said = self.prompt.sandbox.keep_services
        return self.environment.config.keep_services if said is None else said

    async def open(self, only_reads: bool = False) -> SandboxInstance:
        """The instance to verify in, or one to read the agent's files in."""
        with infrastructure_wait():
            return await self._open(only_reads)

    async def _open(self, only_reads: bool) -> SandboxInstance:
        rollout, config = self.request.rollout, self.environment.config
        number = (await self.leased()).number
        hidden = await self.environment.hidden_files(self.item)
        if self.keep_services and hidden:
            raise EnvironmentFailed("keep_services: hidden files would be seen by the agent's processes")
        if self.keep_services and self.given_up:
            raise VerificationUnrepeatable(
                f"keep_services: the agent's processes are gone, and verification has to begin anew: "
                f"{self.given_up[-1].reason}"
            )
        beside = None
        if number in (each.lease for each in self.given_up):
            beside = verification_key(rollout, number, self.epoch)
            # noted before it is made: `close` also destroys what an opening that fails has left
            self._opened[AS_LEFT] = beside
            await self._require_same(AS_LEFT, await self.sandboxes.open_as_left(rollout, number, beside))
        setup = VerifierSetup(
            start=self.start,
            after=None
            if config.verifier_cwd is not None
            else await self.sandboxes.job_of_shell_state(rollout, self.request.shell, number),
            directory=config.verifier_cwd or WORKSPACE,
            trust_workspace=config.trust_workspace,
            only_reads=only_reads,
        )
        instance = await self.sandboxes.open_verifier(
            rollout, number, self.epoch, hidden, setup, in_place=self.keep_services, beside=beside
        )
        await self._raise_fence(instance)
        await failpoints.reach("reward.opened", reward_key(rollout))
        return instance

    async def open_grading(self) -> SandboxInstance:
        """The epoch's sandbox that has nothing of the agent's."""
        key = grading_key(self.request.rollout, (await self.leased()).number, self.epoch)
        instance = await self._open_empty(GRADING, key)
        await self._require_same(GRADING, instance)
        return instance

    async def open_control(self) -> SandboxInstance:
        """A sandbox without anything of the agent's, new for each control of a verifier that failed."""
        key = control_key(self.request.rollout, (await self.leased()).number, self.epoch)
        await self.sandboxes.close_beside(self.request.rollout, key)
        return await self._open_empty(CONTROL, key)

    async def _open_empty(self, kind: str, key: str) -> SandboxInstance:
        asked = await self.environment.grading_sandbox(self.item)
        if asked is None:
            raise EnvironmentFailed("ctx.grading: grading_sandbox of the environment gives no sandbox")
        # noted before it is made, as above
        self._opened[kind] = key
        with infrastructure_wait():
            instance = await self.sandboxes.open_empty(self.request.run, self.request.rollout, key, asked)
            await self._raise_fence(instance)
        return instance

    async def close(self) -> None:
        """Destroy the epoch's own sandboxes; one that can't be destroyed now ends with its lease."""
        for key in self._opened.values():
            try:
                await self.sandboxes.close_beside(self.request.rollout, key)
            except Unavailable as error:
                log.warning("a sandbox of verification is left to the end of its lease: %s", error)
        self._opened.clear()

    @property
    def has_own(self) -> bool:
        """Whether it verifies in a sandbox of its own, in place of the agent's."""
        return AS_LEFT in self._opened

    async def leased(self) -> Lease:
        """The agent's sandbox; a rollout that ran no command gets its first one here."""
        if self.lease is None:
            self.lease = await self.sandboxes.lease(LeaseRequest(rollout=self.request.rollout))
        return self.lease

    @property
    def start(self) -> str:
        """Key of the job that leaves the starting directory of the epoch."""
        return job_key(self.request.rollout, "verify", self.epoch, "start")

    async def _require_same(self, kind: str, instance: SandboxInstance) -> None:
        """Raises GradingSandboxLost for a sandbox in the place of one in which the epoch has worked before."""
        key = opened_key(self.request.rollout, self.epoch, (await self.leased()).number, kind)
        first = await self.journal.write(key, OpenedEntry(incarnation=instance.incarnation))
        if first.incarnation != instance.incarnation:
            raise GradingSandboxLost(f"the sandbox of epoch {self.epoch} was lost between two attempts")

    async def _raise_fence(self, instance: SandboxInstance) -> None:
        # the first claim has no process before it to fence off
        if self.claim:
            await instance.raise_fence(self.claim)
