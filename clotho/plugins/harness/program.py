"""One harness in a rollout's sandbox: its start, its service until it ends, and the record of its end."""

import asyncio
import re
from dataclasses import dataclass

from clotho.errors import InvalidInput, SandboxDisrupted, SandboxLost
from clotho.identifiers.ids import job_key
from clotho.models.messages import ChatMessage
from clotho.plugins.harness.dialects.canonical import text_of
from clotho.plugins.harness.digest import Normalization
from clotho.plugins.harness.gateway import Gateway
from clotho.plugins.harness.harnesses import harness_of
from clotho.plugins.harness.harnesses.harness import BY_SIGNAL, NOT_STARTED, Harness, Start
from clotho.plugins.harness.naming import Naming
from clotho.plugins.harness.settings import HarnessSettings
from clotho.rollouts.agent_program import ProgramEntry, Stage
from clotho.rollouts.program_end import ProgramEnd
from clotho.sandbox.backend import Job, JobState, JobStatus
from clotho.tools import shell

GRACE_SECONDS = 30.0
"""Seconds in which a harness has to end after it was told of a limit, or was about to be."""
MOST_GRACE_SECONDS = 60.0
"""Seconds after which it is ended where commands hold up the job that counts these."""
OUTPUT_CHARACTERS = 20_000
REASON_CHARACTERS = 2_000
"""Of a failed harness' output that its error repeats: the words of an exception, and the last frames before it."""
LOOK_SECONDS = 2.0
VERSION_SECONDS = 60.0
VERSION_CHARACTERS = 10_000
ACTIVE_SECONDS = "max_active_seconds"
OUTPUT_BYTES = "max_output_bytes"
REQUESTED_BYTES = "max_requested_bytes"
"""Limits beside those of turns: of what a harness writes, and of what it sends to its port in all."""
ENDED_AT = {JobState.OUTPUT_LIMIT: OUTPUT_BYTES, JobState.KILLED: ACTIVE_SECONDS}
"""The limit at which a harness ended, by the state of its job, where its gateway knows of none."""
TAKEN = 4
"""Exit code of a port that something else in the sandbox listens at."""


async def run_harness(stage: Stage) -> ProgramEntry:
    """Run the harness of a run in a sandbox, or go on with the one that is there, to its end.

    Raises SandboxLost where the harness failed by itself or a signal ended it: it starts anew in another sandbox,
    as the item begins.
    """
    settings = stage.manifest.tool_settings.of(HarnessSettings) or HarnessSettings()
    name = stage.prompt.program
    assert name is not None
    return await HarnessRun(stage, settings, harness_of(name, settings)).to_its_end()


@dataclass
class HarnessRun:
    """One start of a harness."""

    stage: Stage
    settings: HarnessSettings
    harness: Harness

    async def to_its_end(self) -> ProgramEntry:
        """Serve the harness until it has ended; it goes on where this process stops before that."""
        key = job_key(self.stage.rollout, "harness", self.stage.lease)
        sandbox = self.stage.sandbox
        if sandbox.layout.bare:
            raise InvalidInput("a harness needs a sandbox with a network of its own: leave unsafe_local out")
        normalization = Normalization(self.harness.volatile, (sandbox.workspace, sandbox.home))
        naming = Naming(self.stage, normalization, self.harness.aside_without_tools)
        gateway = Gateway(self.stage, self.settings.port, key, naming)
        await gateway.begin()
        serving = asyncio.create_task(gateway.serve())
        running = asyncio.create_task(self._ended(key, gateway))
        try:
            await asyncio.wait({serving, running}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                status, limit = await running
            else:
                status, limit = await self._ended_with_port(key, await serving)
            await gateway.finish()
        finally:
            for task in (serving, running):
                task.cancel()
            await asyncio.gather(serving, running, return_exceptions=True)
        return await self._entry(key, gateway, naming, status, gateway.limit or limit)

    async def _ended_with_port(self, key: str, port: JobStatus) -> tuple[JobStatus, str | None]:
        """The end of a harness whose port has ended. Raises SandboxDisrupted where commands have ended that."""
        status = await self.stage.sandbox.wait(key, 0)
        if status.state not in (*shell.UNFINISHED, JobState.LOST):
            return status, ENDED_AT.get(status.state)  # an earlier process has closed the port
        if port.state is JobState.OUTPUT_LIMIT:
            return await self._killed(key), REQUESTED_BYTES
        if port.exit_code == TAKEN:
            raise InvalidInput(
                f"port {self.settings.port} of the sandbox is taken: set plugins.harness.port to another one"
            )
        raise SandboxDisrupted("commands have ended the harness' port", port.exhausted)

    async def _ended(self, key: str, gateway: Gateway) -> tuple[JobStatus, str | None]:
        """Start the harness unless it has started; wait for its end, or end it at a limit. Returns that."""
        await gateway.ready()
        await self._start(key)
        told_at: float | None = None
        clock = asyncio.get_running_loop().time
        grace = job_key(key, "grace")
        while True:
            status = await self.stage.sandbox.wait(key, LOOK_SECONDS)
            if status.state is JobState.LOST:
                raise shell.lost("the harness was running in a sandbox that is gone", status)
            if status.state not in shell.UNFINISHED:
                if told_at is not None:
                    await self.stage.sandbox.kill(grace)
                return status, ENDED_AT.get(status.state)
            if gateway.end_words is not None and told_at is None:
                told_at = clock()
                # a job, so that the grace of a harness which was told by an earlier process goes on in this one
                script = f"{shell.SYSTEM_PATH}\nsleep {GRACE_SECONDS:g}"
                await self.stage.sandbox.start(Job(key=grace, script=script))
            if told_at is not None and (
                clock() - told_at > MOST_GRACE_SECONDS or await self._has_ended(grace)
            ):
                return await self._killed(key), gateway.limit
            left = self.stage.seconds_left
            if left is not None and gateway.clock.worked + gateway.sampled_seconds > left:
                return await self._killed(key), ACTIVE_SECONDS

    async def _has_ended(self, key: str) -> bool:
        return (await self.stage.sandbox.wait(key, 0)).state not in shell.UNFINISHED

    async def _killed(self, key: str) -> JobStatus:
        await self.stage.sandbox.kill(key)
        return await self.stage.sandbox.wait(key, GRACE_SECONDS)

    async def _start(self, key: str) -> None:
        sandbox = self.stage.sandbox
        if self.settings.version:
            await self._require_version(job_key(key, "version"), self.settings.version)
        start = Start(
            task=task_of(self.stage.prompt.messages),
            url=f"http://127.0.0.1:{self.settings.port}",
            key=key,
            model=self.stage.manifest.model,
            workdir=sandbox.workspace,
            home=sandbox.home,
            context_tokens=self.stage.context_tokens,
        )
        launch = self.harness.start(start)
        # files and start have keys: a process that takes over does this again without effect
        for path, content in launch.files.items():
            await sandbox.write_file(path, content, key=job_key(key, "file", path))
        await sandbox.start(Job(key=key, script=launch.script))

    async def _require_version(self, key: str, version: str) -> None:
        """Raise InvalidInput for a program of another version: images of a run's items may differ."""
        sandbox = self.stage.sandbox
        await sandbox.start(Job(key=key, script=self.harness.version_command, timeout=VERSION_SECONDS))
        status = await sandbox.wait(key, VERSION_SECONDS)
        if status.state is JobState.LOST:
            raise shell.lost("the harness was asked for its version in a sandbox that is gone", status)
        told = (await sandbox.output(key, 0, VERSION_CHARACTERS)).decode(errors="replace").strip()
        if not tells(version, told):
            raise InvalidInput(
                f"{self.harness.program} isn't of version {version}: it tells {told[:REASON_CHARACTERS]!r}. "
                f"To have it: {self.harness.install}"
            )

    async def _entry(
        self, key: str, gateway: Gateway, naming: Naming, status: JobStatus, limit: str | None
    ) -> ProgramEntry:
        sandbox, counts = self.stage.sandbox, naming.counts
        size = max(0, status.output_size - OUTPUT_CHARACTERS)
        output = (await sandbox.output(key, size, OUTPUT_CHARACTERS)).decode(errors="replace")
        reason = output[-REASON_CHARACTERS:].strip()
        code = status.exit_code if status.exit_code is not None else -1
        # a program that has called was found and started: these codes are its own then
        if code in NOT_STARTED and not counts.calls:
            raise InvalidInput(
                f"{self.harness.program} can't be started in the sandbox: {reason}. To have it: "
                f"{self.harness.install}"
            )
        if limit is None and not gateway.overflows:
            if code in self.harness.own_failures:
                raise SandboxLost(f"{self.harness.name} failed by itself with exit code {code}: {reason}")
            if code in BY_SIGNAL:
                # commands that did it do it again at the same call of the next start: three times are their doing
                signal = code - BY_SIGNAL.start + 1
                raise SandboxDisrupted(
                    f"{self.harness.name} was ended by signal {signal}: {reason}", status.exhausted
                )
        return ProgramEntry(
            end=ProgramEnd(
                exit_code=code,
                seconds=gateway.clock.worked,
                limit=limit,
                context_overflow=bool(gateway.overflows) and limit is None,
                replayed=naming.replayed,
            ),
            output=output,
            calls=counts.calls,
            matched=counts.matched,
            diverged_at=counts.diverged_at,
            repeated=counts.repeated,
        )


def tells(version: str, output: str) -> bool:
    """Whether a program's output has the version as a word: 2.4.1 isn't told by 2.4.13."""
    return version in re.findall(r"[\w.+-]*\w", output)


def task_of(messages: tuple[ChatMessage, ...]) -> str:
    """The task as a harness is told it: the texts of the prompt's messages, the system's first."""
    return "\n\n".join(text_of(message.content) for message in messages if message.content)
