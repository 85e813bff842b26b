"""Restoring a lost sandbox: from the last checkpoint, and by replaying the calls since.

A replay repeats the journalled calls that changed the lost sandbox, under the keys that they have in the new lease.
It is compared by exit codes, and by the workspace's manifest where one was kept; a call that can't be repeated
counts as diverged. The fidelity is recorded, so that training can leave inexact rollouts out.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import JsonValue

from clotho import failpoints
from clotho.config import variable
from clotho.environment.loading import sources_of
from clotho.environment.tools import EnvironmentTools
from clotho.errors import SandboxLost, SandboxUnavailable, SandboxUnhealthy, VerificationUnrepeatable
from clotho.identifiers.ids import call_order, caller_at, job_key
from clotho.identifiers.keys import (
    call_part_key,
    final_key,
    lease_key,
    prompt_key,
    reclaimed_prefix,
)
from clotho.journal import Journal
from clotho.rollouts.group import OfferedTool, read_tools
from clotho.rollouts.lease import CheckpointEntry, Fidelity, LeaseRequest, ReclaimedEntry
from clotho.rollouts.rollout import Prompt
from clotho.runs.manifest import read_manifest
from clotho.runs.sandbox_calls import JournalledCall, calls_in_sandbox
from clotho.sandbox.backend import Labels, SandboxBackend, SandboxInstance, require_backend
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.healthcheck import until_healthy
from clotho.sandbox.item import ItemSandbox
from clotho.sandbox.scratch import scratch
from clotho.tools.shell import SLOT, last_job
from clotho.tools.tool import CallContext, ToolOutcome

log = logging.getLogger("clotho")


@dataclass(frozen=True)
class StartingPoint:
    """The calls and the checkpoint that a sandbox is restored from."""

    calls: Sequence[JournalledCall]
    """The calls journalled until now."""
    checkpointed_through: str
    """The last call that the checkpoint contains."""
    checkpoint: Checkpoint | None
    blob: bytes | None

    @property
    def calls_since(self) -> Sequence[JournalledCall]:
        """The calls to replay."""
        after = call_order(self.checkpointed_through)
        return [call for call in self.calls if call_order(call.call) > after and call.entry.changes]


@dataclass(frozen=True)
class Restored:
    sandbox: SandboxInstance
    fidelity: Fidelity
    replayed_through: str
    """The last call whose effect the sandbox has."""
    shell: str | None
    """The job that left the shell in its state."""

    @property
    def elsewhere(self) -> Fidelity:
        """The fidelity on a host with other programs than the lost sandbox's."""
        return Fidelity.RESTORED if self.fidelity is Fidelity.EXACT else self.fidelity


@dataclass(frozen=True)
class Replayed:
    same: bool
    """Every call was repeated, with the same result."""
    shell: str | None
    """The job that left the shell in its state."""

    @property
    def fidelity(self) -> Fidelity:
        return Fidelity.REPLAYED if self.same else Fidelity.DIVERGED


class Restorer:
    def __init__(
        self, journal: Journal, backend: SandboxBackend, tools: EnvironmentTools, labels: Labels
    ) -> None:
        self._journal = journal
        self._backend = backend
        self._tools = tools
        self._labels = labels

    async def restore(self, request: LeaseRequest) -> Restored:
        start = await self._starting_point(request)
        checkpoint, since = start.checkpoint, start.calls_since
        sandbox = await self.create(request, checkpoint, start.blob)
        await failpoints.reach("restore.unpacked", lease_key(request.rollout, request.number))
        shell = checkpoint.shell.job if checkpoint and checkpoint.shell else None
        state: dict[str, JsonValue] = {SLOT: {"job": shell}} if shell else {}
        replayed = await self.replay(request, sandbox, since, state)
        last = start.calls[-1].call if start.calls else ""
        fidelity = replayed.fidelity if since else _unpacked(checkpoint)
        return Restored(sandbox, fidelity, last, replayed.shell)

    async def _starting_point(self, request: LeaseRequest) -> StartingPoint:
        """Read the calls and the last checkpoint; read both again if a late call has just replaced that.

        Where a checkpoint is gone for good, every call is made again.
        """
        gone: Checkpoint | None = None
        while True:
            calls = await calls_in_sandbox(self._journal, request.rollout, request.turns)
            checkpointed_through, checkpoint = await self._last_checkpoint(request, calls)
            if checkpoint is None:
                return StartingPoint(calls, checkpointed_through, None, None)
            if checkpoint == gone:
                log.warning("the checkpoint after %s is gone from the store", checkpointed_through)
                return StartingPoint(calls, "", None, None)
            await failpoints.reach("restore.chosen", lease_key(request.rollout, request.number))
            blob = await self._journal.read_blob(request.rollout, checkpoint.digest)
            if blob is not None:
                return StartingPoint(calls, checkpointed_through, checkpoint, blob)
            gone = checkpoint

    async def _last_checkpoint(
        self, request: LeaseRequest, calls: Sequence[JournalledCall]
    ) -> tuple[str, Checkpoint | None]:
        final = await self._journal.read(final_key(request.rollout), CheckpointEntry)
        if final is not None and final.checkpoint is None:
            await self._require_repeatable(request.rollout)
        if final is not None and final.checkpoint is not None:
            return (calls[-1].call if calls else ""), final.checkpoint
        idle = await self._journal.latest(reclaimed_prefix(request.rollout), ReclaimedEntry)
        for call in reversed(calls):
            # the checkpoint of the idle sandbox is newer than those of the calls from here back
            if idle is not None and call_order(call.call) <= call_order(idle.through):
                break
            if call.entry.checkpoint is not None:
                return call.call, call.entry.checkpoint
        return (idle.through, idle.checkpoint) if idle is not None else ("", None)

    async def _require_repeatable(self, rollout: str) -> None:
        """Raise VerificationUnrepeatable where a program has ended, whose work no replay brings back."""
        if (await self._journal.read_required(prompt_key(rollout), Prompt)).program is not None:
            raise VerificationUnrepeatable(
                "the sandbox was lost after the agent's program had ended, and the workspace couldn't be "
                "checkpointed before: is it larger than checkpoint_mb?"
            )

    async def create(
        self,
        request: LeaseRequest,
        checkpoint: Checkpoint | None = None,
        blob: bytes | None = None,
        beside: str | None = None,
    ) -> SandboxInstance:
        """The sandbox of a lease: a rollout's first one has the item's files, others what a checkpoint has.

        `beside` is the key of one beside the lease's own.
        """
        lease = beside or lease_key(request.rollout, request.number)
        labels = self._labels.model_copy(update={"rollout": request.rollout})
        manifest = await read_manifest(self._journal, request.run)
        prompt = await self._journal.read_required(prompt_key(request.rollout), Prompt)
        spec = prompt.sandbox.spec(manifest.sandbox, variable)
        require_backend(spec, self._backend)
        # The environment's own files, its verifier among them: no sandbox may see them.
        private = await asyncio.to_thread(sources_of, manifest.environment)
        if checkpoint is None or blob is None:
            sandbox = await self._backend.create(lease, spec, labels, private=private)
            await failpoints.reach("sandbox.created", lease)
            for file, content in prompt.workspace_files.items():
                # Each once: an interrupted attempt may finish after the first commands.
                key = job_key(request.rollout, "file", file)
                await sandbox.write_file(file, base64.b64decode(content), key=key)
            await self._require_healthy(sandbox, prompt.sandbox, lease, labels)
            return sandbox
        with scratch() as path:
            await asyncio.to_thread(path.write_bytes, blob)
            restore = Restore(checkpoint, path)
            sandbox = await self._backend.create(lease, spec, labels, restore, private)
        await self._require_healthy(sandbox, prompt.sandbox, lease, labels, restored=True)
        return sandbox

    async def create_as_left(self, request: LeaseRequest, key: str) -> SandboxInstance:
        """A sandbox beside the lease's own, as the agent left it; or the one that is there.

        Raises VerificationUnrepeatable where no checkpoint has that state.
        """
        left = await self._journal.read(final_key(request.rollout), CheckpointEntry)
        if left is None:  # no command ran before verification
            return await self.create(request, beside=key)
        if left.checkpoint is None:
            raise VerificationUnrepeatable(
                "verification has to begin anew, and the workspace couldn't be checkpointed before: is it larger "
                "than checkpoint_mb?"
            )
        blob = await self._journal.read_blob(request.rollout, left.checkpoint.digest)
        if blob is None:
            raise VerificationUnrepeatable("the checkpoint before verification is gone from the store")
        return await self.create(request, left.checkpoint, blob, key)

    async def create_for_grading(
        self, run: str, lease: str, labels: Labels, asked: ItemSandbox
    ) -> SandboxInstance:
        """A sandbox that has nothing of the agent's, or the one that is there."""
        manifest = await read_manifest(self._journal, run)
        spec = asked.spec(manifest.sandbox, variable)
        require_backend(spec, self._backend)
        sandbox = await self._backend.create(lease, spec, labels)
        await self._require_healthy(sandbox, asked, lease, labels)
        return sandbox

    async def _require_healthy(
        self,
        sandbox: SandboxInstance,
        asked: ItemSandbox,
        lease: str,
        labels: Labels,
        restored: bool = False,
    ) -> None:
        """Raises SandboxUnhealthy if the check fails or exhausts the sandbox, SandboxUnavailable for another loss.

        A sandbox restored from a checkpoint fails no check, since the agent may have broken it; if it is lost, that
        is a SandboxLost.
        """
        if asked.healthcheck is None:
            return
        try:
            await until_healthy(sandbox, asked.healthcheck, partial(job_key, lease, "healthcheck"))
        except (SandboxUnhealthy, SandboxLost) as error:
            if restored and isinstance(error, SandboxUnhealthy):
                log.warning("restored as it was at %s: %s", lease, error)
                return
            await self._backend.destroy(lease, labels)  # another attempt begins with a new one
            if isinstance(error, SandboxLost) and not restored:
                kind = SandboxUnhealthy if error.exhausted else SandboxUnavailable
                raise kind(str(error)) from error
            raise

    async def replay(
        self,
        request: LeaseRequest,
        sandbox: SandboxInstance,
        since: Sequence[JournalledCall],
        state: dict[str, JsonValue],
    ) -> Replayed:
        """Repeat calls in the sandbox of a lease, at most once each; `state` is the tool state before them."""
        manifest = await read_manifest(self._journal, request.run)
        tools = await self._offered(request.rollout) if since else ()
        offered = [tool.name for tool in tools]
        dispatcher = await self._tools.dispatcher(manifest, tools)
        same = True
        for call in since:
            rollout, own = caller_at(request.rollout, call.call)
            context = CallContext(
                rollout=rollout,
                call=("call", own),
                lease=request.number,
                tool_call_id=call.asked.id,
                settings=manifest.tool_settings,
                state=state,
                instance=sandbox,
                seconds_left=call.entry.seconds_left,
                once=journalled_parts(self._journal, rollout, own),
            )
            function = call.asked.function
            again = await dispatcher.replay(
                function.name, function.arguments, offered, context, call.entry.content, call.entry.spilled
            )
            if again is None:
                same = False
                continue
            state |= again.state
            # By exit code and error alone: times and names in outputs vary.
            same &= (again.exit_code, again.names_error) == (call.entry.exit_code, call.entry.names_error)
            if call.entry.manifest is not None:
                found = await sandbox.manifest()
                same &= found is not None and found.digest == call.entry.manifest
        return Replayed(same, last_job(state))

    async def _offered(self, rollout: str) -> tuple[OfferedTool, ...]:
        return (await read_tools(self._journal, rollout)).tools


def _unpacked(checkpoint: Checkpoint | None) -> Fidelity:
    """The fidelity of a sandbox restored from a checkpoint without a replay."""
    return Fidelity.EXACT if checkpoint is None or checkpoint.exact else Fidelity.RESTORED


def journalled_parts(
    journal: Journal, rollout: str, call: str
) -> Callable[[str, Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]]:
    """Does parts of a call, each journalled under its name: an attempt that follows finds those that are done."""

    async def once(name: str, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
        return await journal.once(call_part_key(rollout, call, name), ToolOutcome, work)

    return once
