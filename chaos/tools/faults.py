"""Faults strike a tool that has a process of its own, at each phase of its call."""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from chaos import sandboxes
from chaos.faults import WORKER_LIMIT, Fault, destroy_sandbox, kill_worker, reset_rollout, terminate
from chaos.phases import STEP, Hit, Phase, in_command
from chaos.plays import Name
from chaos.stage import TOOLS, Stage
from chaos.tools.delegating import DELEGATION_SCRIPT, SHARED_SCRIPT, DelegationScript
from chaos.tools.scripts import BROWSER_SCRIPT, CODE_SCRIPT, MCP_SCRIPT, ToolScript
from chaos.waiting import until
from clotho.identifiers.ids import call_id, child_id
from clotho.plugins.browser.launch import lacking
from clotho.plugins.demo.kill_processes import arguments_of, program_of, programs_of_lease

BROWSER = "clotho.plugins.browser.process.server"
BROWSER_START = 10.0
PHASES = {
    "before-tool": Phase("before the call", ("call.asked[{call}]",)),
    "in-tool": Phase("in the call", wait=in_command, slows_command=True),
    "after-tool": Phase("after the call, its result journalled", ("call.journalled[{call}]",)),
}
OF_CHILD = {**PHASES, "before-tool": Phase("before the child is begun", ("journal.write[{delegation}]",))}
"""By the time a call is made that delegates, the child has ended."""
OF_CHILDS_TURNS = {
    "before-tool": Phase("before the child's first turn", ("turn.asking[{child}/turn/0000]",)),
    "in-tool": Phase("its second turn answered, not journalled", ("turn.answered[{child}/turn/0001]",)),
    "after-tool": Phase("its last turn journalled", ("turn.journalled[{child}/turn/0002]",)),
}


async def kill_program(stage: Stage, hit: Hit, rollout: str) -> None:
    """SIGKILL of the Python program in the rollout's sandbox: the code, or the server."""
    pids = [
        pid
        for lease in await sandboxes.leases_of(stage, rollout)
        for pid in await asyncio.to_thread(programs_of_lease, stage.sandbox_folder, lease, "python3")
    ]
    await _kill(pids)
    hit.release()


async def kill_chromium(stage: Stage, hit: Hit, rollout: str) -> None:
    [server] = _browsers(stage)
    await _kill([pid for pid in _below(server) if program_of(pid) == "bwrap"])
    hit.release()


async def kill_browser(stage: Stage, hit: Hit, rollout: str) -> None:
    """SIGKILL of the process that holds the pages, with which Chromium ends."""
    await _kill(_browsers(stage))
    hit.release()


async def terminate_child(stage: Stage, hit: Hit, rollout: str) -> None:
    await terminate(stage, child_id(rollout, call_id(STEP, 0)))
    hit.release()


async def _kill(pids: list[int]) -> None:
    assert pids, "what is to be killed isn't there"
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def ended() -> bool:
        return not any(arguments_of(pid) for pid in pids)

    await until(ended, "the end of what was killed")


def _browsers(stage: Stage) -> list[int]:
    return [pid for pid in _below(stage.pid_of(TOOLS)) if BROWSER in arguments_of(pid)]


def _below(parent: int) -> Iterator[int]:
    """The processes that a process has started, and that these have."""
    for task in Path(f"/proc/{parent}/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            yield pid
            with suppress(OSError):
                yield from _below(pid)


def _of_tool(name: str, title: str, script: ToolScript, starting: float = 0.0) -> dict[str, Fault]:
    """Those that every tool has; `starting` seconds are allowed for what ends with the worker to start again."""
    return {
        f"{name}-worker": Fault(
            f"{title}: SIGKILL of a worker",
            kill_worker,
            WORKER_LIMIT + starting,
            counts_from_strike=True,
            script=script,
        ),
        f"{name}-sandbox": Fault(
            f"{title}: the sandbox destroyed, files and all", destroy_sandbox, script=script
        ),
    }


DELEGATED = "`delegate_task`"
FAULTS = {
    **_of_tool("code", "`execute_code`", CODE_SCRIPT),
    "code-program": Fault("`execute_code`: SIGKILL of the code", kill_program, script=CODE_SCRIPT),
    **_of_tool("mcp", "MCP", MCP_SCRIPT),
    "mcp-server": Fault("MCP: SIGKILL of the server", kill_program, script=MCP_SCRIPT),
    **_of_tool("browser", "browser", BROWSER_SCRIPT, BROWSER_START),
    "browser-chromium": Fault("browser: SIGKILL of Chromium", kill_chromium, script=BROWSER_SCRIPT),
    "browser-process": Fault(
        "browser: SIGKILL of the process that holds its pages", kill_browser, script=BROWSER_SCRIPT
    ),
    **_of_tool("delegate", DELEGATED, DELEGATION_SCRIPT),
    "delegate-model": Fault(
        f"{DELEGATED}: SIGKILL of the worker that asks for the child's turns",
        kill_worker,
        WORKER_LIMIT,
        counts_from_strike=True,
        script=DELEGATION_SCRIPT,
    ),
    "delegate-child": Fault(
        f"{DELEGATED}: the child terminated", terminate_child, by_operator=True, script=DELEGATION_SCRIPT
    ),
    "delegate-reset": Fault(
        f"{DELEGATED}: the parent reset", reset_rollout, by_operator=True, script=DELEGATION_SCRIPT
    ),
    **_of_tool("delegate-shared", f"{DELEGATED} in the parent's sandbox", SHARED_SCRIPT),
}
RUNS_IN_CALL = ("code-program", "delegate-child")
"""Faults of what there is during a call alone."""


def phases_of(fault: str) -> Mapping[str, Phase]:
    if fault == "delegate-model":
        return OF_CHILDS_TURNS
    return OF_CHILD if isinstance(FAULTS[fault].script, DelegationScript) else PHASES


def there_is(name: Name) -> bool:
    """Whether there is such a cell, and this machine has what it takes for it."""
    fault, phase = name
    if fault in RUNS_IN_CALL and phase != "in-tool":
        return False
    return FAULTS[fault].script is not BROWSER_SCRIPT or lacking() is None
