"""Down the loss ladder: a new sandbox from the last checkpoint, and what was done since done again.

A replay runs journalled calls under the keys that they have in this lease's sandbox, and is judged by their exit
codes, and by the workspace where its manifest was kept. What it came to is recorded, so that training can leave
inexact ones out.
"""

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from clotho import failpoints
from clotho.entries.group import ToolManifest
from clotho.entries.rollout import CallEntry, CheckpointEntry, Prompt
from clotho.entries.run import RunManifest
from clotho.environment.loading import sources_of
from clotho.errors import SandboxLost
from clotho.identifiers import call_id, final_key, group_of, job_key, lease_key, prompt_key, tools_key
from clotho.inference.base import ToolCall
from clotho.journal import Journal
from clotho.records.lease import Fidelity, LeaseRequest
from clotho.runs.manifest import read_manifest
from clotho.sandbox.base import Labels, SandboxBackend, SandboxInstance
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.scratch import scratch
from clotho.toolsets.calls import BoundCall
from clotho.toolsets.dispatch import Dispatcher
from clotho.toolsets.shell import SLOT, last_job
from clotho.transcript import read_transcript

REPLAYED = frozenset({"terminal", "write_file", "patch"})
"""The tools whose calls change a workspace."""


@dataclass(frozen=True)
class Made:
    """A call that was made in a sandbox."""

    call: str
    asked: ToolCall
    entry: CallEntry


@dataclass(frozen=True)
class Restored:
    sandbox: SandboxInstance
    fidelity: Fidelity
    covered: str
    """The last call whose effect the checkpoint holds; empty without one."""
    made: str
    """The last call whose effect the sandbox has."""
    shell: str | None
    """The job whose shell state the checkpoint holds."""


class Restorer:
    """Makes the sandbox of a lease that follows a lost one."""

    def __init__(
        self, journal: Journal, backend: SandboxBackend, dispatcher: Dispatcher, labels: Labels
    ) -> None:
        self._journal = journal
        self._backend = backend
        self._dispatcher = dispatcher
        self._labels = labels

    async def restore(self, request: LeaseRequest) -> Restored:
        manifest = await read_manifest(self._journal, request.run)
        made = await self.calls_made(request)
        covered, checkpoint = await self._last_checkpoint(request, made)
        sandbox = await self._create(request, manifest, checkpoint)
        await failpoints.reach("restore.unpacked", lease_key(request.rollout, request.number))
        since = [call for call in made if call.call > covered and call.asked.function.name in REPLAYED]
        shell = checkpoint.shell.job if checkpoint and checkpoint.shell else None
        state: dict[str, JsonValue] = {SLOT: {"job": shell}} if shell else {}
        same = await self.replay(request, sandbox, since, state)
        last = made[-1].call if made else ""
        return Restored(sandbox, _fidelity(checkpoint, since, same), covered, last, shell)

    async def calls_made(self, request: LeaseRequest) -> list[Made]:
        """The journalled calls of the rollout that ran in a sandbox, in their order."""
        transcript = await read_transcript(self._journal, request.rollout, request.turns)
        return [
            Made(call_id(number, index), asked, entry)
            for number, step in enumerate(transcript.steps)
            for index, (asked, entry) in enumerate(zip(step.turn.tool_calls, step.calls, strict=False))
            if entry.lease is not None
        ]

    async def _last_checkpoint(
        self, request: LeaseRequest, made: Sequence[Made]
    ) -> tuple[str, Checkpoint | None]:
        final = await self._journal.read(final_key(request.rollout), CheckpointEntry)
        if final is not None:
            return (made[-1].call if made else ""), final.checkpoint
        for call in reversed(made):
            if call.entry.checkpoint is not None:
                return call.call, call.entry.checkpoint
        return "", None

    async def fresh(self, request: LeaseRequest) -> SandboxInstance:
        """The sandbox that a rollout starts with."""
        return await self._create(request, await read_manifest(self._journal, request.run), None)

    async def _with_files(self, sandbox: SandboxInstance, request: LeaseRequest) -> SandboxInstance:
        prompt = await self._journal.require(prompt_key(request.rollout), Prompt)
        for path, content in prompt.workspace_files.items():
            await sandbox.write_file(path, base64.b64decode(content))
        return sandbox

    async def _create(
        self, request: LeaseRequest, manifest: RunManifest, checkpoint: Checkpoint | None
    ) -> SandboxInstance:
        lease = lease_key(request.rollout, request.number)
        labels = self._labels.model_copy(update={"rollout": request.rollout})
        private = await asyncio.to_thread(sources_of, manifest.environment)
        if checkpoint is None:
            fresh = await self._backend.create(lease, manifest.sandbox, labels, private=private)
            return await self._with_files(fresh, request)
        blob = await self._journal.read_blob(request.rollout, checkpoint.digest)
        if blob is None:
            raise SandboxLost(f"the checkpoint of {request.rollout} is gone from the store")
        with scratch() as path:
            await asyncio.to_thread(path.write_bytes, blob)
            restore = Restore(checkpoint, path)
            return await self._backend.create(lease, manifest.sandbox, labels, restore, private)

    async def replay(
        self,
        request: LeaseRequest,
        sandbox: SandboxInstance,
        since: Sequence[Made],
        state: dict[str, JsonValue],
    ) -> bool:
        """Make calls in the sandbox of a lease, after those that left `state`, at most once each.

        Returns whether every one came to what it had come to before.
        """
        manifest = await read_manifest(self._journal, request.run)
        tools = await self._journal.require(tools_key(group_of(request.rollout)), ToolManifest)
        same = True
        for call in since:
            context = BoundCall(
                rollout=request.rollout,
                scope=call_scope(call.call, request.number),
                tool_call_id=call.asked.id,
                settings=manifest.tool_settings,
                state=state,
                instance=sandbox,
            )
            function = call.asked.function
            again = await self._dispatcher.run(
                function.name, function.arguments, [tool.name for tool in tools.tools], context
            )
            state |= again.state
            same &= _result(again.content) == _result(call.entry.content)
            if call.entry.manifest is not None:
                same &= (await sandbox.manifest()).digest == call.entry.manifest
        return same


def call_scope(call: str, lease: int) -> tuple[str | int, ...]:
    """Of a call's keys in a lease's sandbox: what was running in a lost one is another command in the next."""
    return ("call", call, lease)


def shell_job(
    rollout: str, call: str, entry: CallEntry, lease: int, covered: str, shell: str | None
) -> str | None:
    """The key, in the sandbox of `lease`, of the job that left the shell state which `call` left."""
    if entry.lease == lease:
        return last_job(entry.state)
    return shell if call <= covered else job_key(rollout, *call_scope(call, lease))


def _fidelity(checkpoint: Checkpoint | None, since: Sequence[Made], same: bool) -> Fidelity:
    if since:
        return Fidelity.REPLAYED if same else Fidelity.DIVERGED
    return Fidelity.EXACT if checkpoint is None or checkpoint.exact else Fidelity.RESTORED


def _result(content: str) -> tuple[JsonValue, bool] | None:
    """What of a result says whether a call did the same: its exit code, and whether it failed."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return (found.get("exit_code"), bool(found.get("error"))) if isinstance(found, dict) else None
