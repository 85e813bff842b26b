"""The host fails under a sandbox: whatever call and error it is, it is retried, and shows nowhere."""

import asyncio
import errno
import itertools
import json
import resource
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, cast

import pytest

from clotho.config import variable
from clotho.environment.tool_context import AsyncToolContext
from clotho.environment.workspace import Workspace
from clotho.errors import ClothoError, HostUnavailable, SandboxLost, SandboxUnavailable, Unavailable
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import JobState, Labels, SandboxInstance, SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.supervised import launch, watches
from clotho.sandbox.supervised.launch import lock_holder
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings
from tests.sandbox.conftest import BACKENDS, SPECS, needs_root
from tests.sandbox.injection import ROOT, Injection, NoInotify, Site, injected
from tests.sandbox.late_start import starting_late
from tests.sandbox.shell import Shell
from tests.sandbox.tool_calls import REGISTRY, Calls
from tests.support import PATIENCE_SECONDS

ERRNOS = (
    *(errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EROFS),
    errno.ESTALE,
)
FAILURES: tuple[Callable[[], BaseException], ...] = (
    *(lambda number=number: OSError(number, "injected", "/the/host/path") for number in ERRNOS),
    MemoryError,
    lambda: RuntimeError("can't start new thread"),
)
SPEC = SandboxSpec(disk_mb=100, memory_mb=512)
MOST_ATTEMPTS = 4
AT_A_ROLLOUT = 3
"""Failures, far from each other: all of them may meet one step, and the next attempt succeeds."""
Step = Callable[["Rollout"], Awaitable[None]]


class Rollout:
    """The steps of a rollout in its sandbox, each of which may be tried again, as an activity is."""

    def __init__(self, backend: LocalBackend, lease: str, folder: Path) -> None:
        self.backend, self.lease, self.folder = backend, lease, folder
        self.incarnation, self.begun = "", False
        self.calls = Calls(cast(SandboxInstance, None), ToolSettings(terminal_timeout=PATIENCE_SECONDS))
        self.numbers = itertools.count()
        self.shown: list[str] = []
        self.score = 0.0

    async def create(self) -> None:
        labels = Labels(store="s", cluster="c", namespace="n", rollout="r")
        self.incarnation = (await self.backend.create(self.lease, SPEC, labels)).incarnation

    async def tool(self, name: str, arguments: dict[str, Any], again: bool) -> dict[str, Any]:
        """Like the tool activity: attach, and dispatch under the call's own keys."""
        self.begun &= again
        self.calls.sandbox = await self.backend.attach(self.lease, self.incarnation)
        call, self.begun = (self.calls.again if self.begun else self.calls), True
        result = await call(name, **arguments)
        self.shown.append(self.calls.dispatched.content)
        return result

    async def checkpoint(self) -> None:
        sandbox = await self.backend.attach(self.lease, self.incarnation)
        taken = await sandbox.checkpoint(self.folder / f"blob-{next(self.numbers)}")
        assert isinstance(taken, Checkpoint) and await sandbox.manifest() is not None

    async def keep(self) -> None:
        assert self.lease in [held.lease for held in await self.backend.leases()]
        await self.backend.renew(self.lease, 600)
        await self.backend.reap()

    async def verify(self) -> None:
        async def opened() -> SandboxInstance:
            return await self.backend.open_verifier(self.lease, 0, {"answer": b"hello"})

        workspace = Workspace(
            "r", ("verify", 0), opened, Dispatcher(REGISTRY, variable), REGISTRY.names, ToolSettings()
        )
        context = AsyncToolContext(workspace, asyncio.get_running_loop())
        try:
            said = await context.call_tool("terminal", {"command": "cat /work/a/f"})
            self.shown.append(said)
            exit_code = json.loads(said).get("exit_code")
            found = await context.read_bytes("/work/a/f", 1000)
        except Exception:
            assert workspace.failure is not None
            raise
        self.score = float(exit_code == 0 and found == b"hello\n")

    async def destroy(self) -> None:
        await self.backend.destroy(self.lease)


TOOL_CALLS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        "terminal",
        {"command": "mkdir -p a && cd a && echo hello > f && pwd"},
        '"output": "/work/a\\n", "exit_code": 0',
    ),
    ("write_file", {"path": "new/g", "content": "1\n2\n"}, '"bytes_written": 4, "dirs_created": true'),
    ("patch", {"mode": "replace", "path": "new/g", "old_string": "2", "new_string": "3"}, '"success": true'),
    ("read_file", {"path": "new/g"}, "1|1\\n     2|3"),
    ("read_file", {"path": "new/h"}, "File not found"),
    ("search_files", {"pattern": "hello"}, '"total_count": 1'),
    ("terminal", {"command": "cat f; pwd; exit 3"}, '"output": "hello\\n/work/a\\n", "exit_code": 3'),
    ("terminal", {"command": "sleep 1000", "background": True}, "Background process started"),
    ("process", {"action": "list"}, '"status": "running"'),
)


async def play(rollout: Rollout) -> int:
    """The whole rollout, every step tried until it succeeds; returns how many attempts failed.

    Raises SandboxLost where a sandbox is given up: another would be restored.
    """
    failed = 0

    async def tried(step: Callable[[bool], Awaitable[object]]) -> Any:
        nonlocal failed
        for attempt in range(MOST_ATTEMPTS):
            try:
                return await asyncio.wait_for(step(attempt > 0), PATIENCE_SECONDS)
            except SandboxLost:
                raise
            except ClothoError as error:
                assert isinstance(error, Unavailable), error
                failed += 1
        raise AssertionError("it never succeeds")

    await tried(lambda again: rollout.create())
    for name, arguments, expected in TOOL_CALLS:
        await tried(partial(rollout.tool, name, arguments))
        assert expected in rollout.shown[-1]
    await tried(lambda again: rollout.checkpoint())
    await tried(lambda again: rollout.keep())
    await tried(lambda again: rollout.verify())
    await tried(lambda again: rollout.destroy())
    assert rollout.score == 1.0
    for shown in rollout.shown:
        assert not any(
            bad in shown for bad in ("Tool execution failed", "Errno", "injected", "/the/host", ROOT)
        )
    return failed


@needs_root
@pytest.mark.slow
async def test_an_error_at_every_call_to_the_host_is_retried(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = await sites_of(folder, tmp_path, monkeypatch)
    assert len(sites) > 40
    failures = list(zip(sites, itertools.cycle(FAILURES), strict=False))
    rollouts = -(-len(sites) // AT_A_ROLLOUT)
    for number in range(rollouts):
        left = dict(failures[number::rollouts])
        while left:
            fired, lost = await strike(folder, tmp_path, monkeypatch, left)
            left = {site: failure for site, failure in left.items() if lost and site not in fired}


async def sites_of(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Site]:
    """The calls that an undisturbed rollout makes."""
    backend = LocalBackend(folder / "sandboxes-failing")
    with injected(monkeypatch, Injection(f"{ROOT}/sandbox/")) as recorded:
        assert await play(Rollout(backend, "failing/sites/lease/0", tmp_path)) == 0
    return sorted(recorded.seen, key=lambda site: (site.place, site.call))


async def strike(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: Mapping[Site, Callable[[], BaseException]],
) -> tuple[set[Site], bool]:
    """The sites at which a rollout has failed, and whether it lost its sandbox."""
    injection = Injection(f"{ROOT}/sandbox/", failures)
    backend = LocalBackend(folder / "sandboxes-failing")
    with injected(monkeypatch, injection):
        rollout = Rollout(backend, f"failing/{uuid.uuid4().hex}/lease/0", tmp_path)
        try:
            await play(rollout)
        except SandboxLost as lost:  # its disk is full, as far as anybody can tell
            raised = [getattr(failures[site](), "errno", None) for site in injection.fired]
            assert errno.ENOSPC in raised and lost.exhausted == "disk"
            await rollout.destroy()
            return injection.fired, True
        except BaseException as error:
            error.add_note(f"{[(site, failures[site]()) for site in injection.fired]}")
            await rollout.destroy()
            raise
    return injection.fired, False


def never_starting(*_: object) -> NoReturn:
    raise SandboxUnavailable("it doesn't start")


async def test_a_verifier_that_starts_late_is_made_anew(
    lease: str, backend: LocalBackend, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor comes up just before the next attempt ends it."""
    await backend.create(lease, spec)
    with monkeypatch.context() as failing:
        failing.setattr(launch, "start", never_starting)
        with pytest.raises(SandboxUnavailable):
            await backend.open_verifier(lease, 0, {})
    monkeypatch.setattr(launch, "end", starting_late(launch.end))
    assert await Shell(await backend.open_verifier(lease, 0, {})).text("echo anew") == "anew"
    await backend.destroy(lease)


@pytest.mark.parametrize("failing", ["inotify_init1", "inotify_add_watch"])
async def test_without_inotify_commands_are_followed_all_the_same(
    failing: str, lease: str, backend: LocalBackend, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instances and watches are counted for a user, and a policy's sandbox may be of the same."""
    monkeypatch.setattr(watches, "_libc", NoInotify(failing, errno.EMFILE))
    monkeypatch.setattr(watches.Watches, "_of_loop", {})
    monkeypatch.setattr(watches, "RECHECK_SECONDS", 10 * PATIENCE_SECONDS)
    call = Calls(await backend.create(lease, spec))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await call("terminal", command="sleep 0.1; echo ran"))["output"] == "ran\n"
        assert (await call("write_file", path="x", content="y"))["bytes_written"] == 1
    await backend.destroy(lease)


class OwnLogic(Tool):
    """A tool of an author's, whose own code raises."""

    name = "own_logic"
    toolset = "own"
    description = "Raises"
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}
    sandboxed = False

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("bad luck"), "Tool execution failed: ValueError: bad luck"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/home/host/x"), "FileNotFoundError: No such file"),
        (ConnectionError("refused"), "ConnectionError: refused"),
    ],
)
async def test_what_a_tools_own_code_raises_is_a_tool_error(error: Exception, said: str) -> None:
    shown = (await dispatched(error)).content
    assert said in shown and "/home/host" not in shown


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_hosts_failure_in_a_tools_own_code_is_none(failure: Callable[[], BaseException]) -> None:
    with pytest.raises(HostUnavailable) as raised:
        await dispatched(failure())
    assert "/the/host/path" not in str(raised.value)


async def dispatched(error: BaseException) -> Any:
    registry = Registry([OwnLogic(error)])
    context = CallContext("r", ("call", "0000-00"), "call_1", ToolSettings(), {}, None)
    return await Dispatcher(registry, variable).run("own_logic", "{}", ["own_logic"], context)


@pytest.fixture
async def wrecked(lease: str, backend: LocalBackend, spec: SandboxSpec) -> AsyncIterator[Calls]:
    yield Calls(await backend.create(lease, spec))
    await backend.destroy(lease)


@pytest.mark.parametrize("damage", ["", "exited", "exited x y"])
async def test_a_damaged_result_is_a_lost_sandbox(wrecked: Calls, damage: str) -> None:
    """A supervisor without descriptors left such a one."""
    await wrecked("terminal", command="echo")
    control = cast(Any, wrecked.sandbox).control
    (control.path / "c" / wrecked.last.job_key() / "done").write_text(damage)
    with pytest.raises(SandboxLost, match="damaged"):
        await wrecked.again("terminal", command="echo")


async def test_a_damaged_answer_is_asked_for_again(wrecked: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = cast(Any, wrecked.sandbox)
    await wrecked("write_file", path="x", content="there")
    real, damaged = sandbox._transfers.stage, []

    def stage(key: str, *arguments: Any) -> None:
        real(key, *arguments)
        damaged.append(key)
        (sandbox.control.path / "f" / key / "done").write_text("")

    monkeypatch.setattr(sandbox._transfers, "stage", stage)
    with pytest.raises(SandboxUnavailable):
        await wrecked("read_file", path="x")
    monkeypatch.setattr(sandbox._transfers, "stage", real)
    assert (await wrecked("read_file", path="x"))["content"] == "     1|there"


@pytest.mark.parametrize("files", range(3, 24, 4))
async def test_a_command_that_cannot_be_started_is_no_result(folder: Path, lease: str, files: int) -> None:
    """A supervisor with so few descriptors: wherever it stops for want of one, the command runs later, once."""
    backend = BACKENDS["bare"](folder / "sandboxes-bare")
    shell = Shell(await backend.create(lease, SPECS["bare"]))
    supervisor = lock_holder(shell.control.alive_file)
    assert supervisor is not None
    await shell.run("cd /usr; export A=1", name="before")
    usual = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    job = shell.job("echo $A $PWD; echo ran >> ~/ran", after=job_key("before"))
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (files, usual[1]))
    await shell.sandbox.start(job)
    starved = await shell.sandbox.wait(job.key, 0.5)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, usual)
    assert starved.state in (JobState.RUNNING, JobState.EXITED)
    while (status := await shell.sandbox.wait(job.key, 0.5)).state is JobState.RUNNING:
        pass
    assert (status.exit_code, await shell.sandbox.output(job.key)) == (0, b"1 /usr\n")
    assert await shell.text("cat ~/ran") == "ran"
    await backend.destroy(lease)


@needs_root
@pytest.mark.parametrize(("most", "said"), [(4096, "hello there\n"), (128, "open files are allowed")])
async def test_a_supervisor_takes_the_descriptors_it_needs_or_says_so(
    folder: Path, lease: str, most: int, said: str
) -> None:
    """A worker that was left few has supervisors and commands that work; where no more are allowed, it is told."""
    script = f"""
import asyncio, resource
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {most}))
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.errors import ClothoError
from tests.sandbox.tool_calls import Calls
async def main():
    backend = LocalBackend(Path({str(folder / "sandboxes-local")!r}))
    backend._host._require = lambda spec: True
    try:
        call = Calls(await backend.create({lease!r}, SandboxSpec(disk_mb=100)))
        await call("write_file", path="x", content="there")
        print((await call("terminal", command='echo hello $(cat x); [ $(ulimit -n) -ge 1024 ]'))["output"], end="")
    except ClothoError as error:
        print(error)
    await backend.destroy({lease!r})
asyncio.run(main())
"""
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await done.communicate()
    assert said in output.decode(), errors.decode()
