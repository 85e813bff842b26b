"""What models of harnesses say, and their server: a process that can be killed."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.harness import tasks
from chaos.waiting import until
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.rollouts.agent import Agent, AgentKind
from clotho.run_settings import RunSettings
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import MODEL_NAME

INSTALLED = Path(__file__).parents[2] / ".venv/harnesses"
"""Where `make harnesses` installs real ones."""
PLACE = "/opt/agents"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command by which mini-swe-agent's model ends: its only tool is the shell."""


@dataclass(frozen=True)
class Shell:
    """How a harness offers a shell to its model."""

    tool: str = "terminal"
    argument: str = "command"
    beside: tuple[str, ...] = ()
    """Further arguments that it requires."""
    program: str = ""
    """The executable; empty for the harness of the tasks."""

    def call(self, command: str) -> ScriptedTurn:
        arguments = {self.argument: command, **dict.fromkeys(self.beside, "step")}
        return ScriptedTurn(calls=(ScriptedCall(name=self.tool, arguments=dict(arguments)),))


REAL = {
    "mini-swe-agent": Shell("bash", program="mini"),
    "codex": Shell("exec_command", "cmd", program="codex"),
    "claude-code": Shell("Bash", beside=("description",), program="claude"),
    "opencode": Shell("bash", beside=("description",), program="opencode"),
}


def is_installed(name: str) -> bool:
    return (INSTALLED / "bin" / REAL[name].program).exists()


class ScriptServer:
    """A scripted model as a process of its own, which answers at the same address over restarts."""

    model = MODEL_NAME

    def __init__(self, script: Script, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        file = folder / "script.json"
        file.write_text(script.model_dump_json())
        command = [sys.executable, "-m", "clotho.testing.scripted_model", str(file), "--port", str(port)]
        self._process = ChildProcess(command, folder / "model.log")

    async def start(self) -> None:
        """Start it, and wait until it listens."""

        async def listens() -> bool:
            return self.url in self._process.output

        await self._process.start()
        await until(listens, "a model server that listens")

    async def kill(self) -> None:
        await self._process.kill()


@dataclass(frozen=True)
class HarnessScript:
    """The tasks, done by the harness called `name`; a `further` command comes before the last."""

    name: str = "command"
    further: str | None = None
    environment: str = "chaos.harness.tasks:HarnessTasks"

    @property
    def agent(self) -> Agent:
        return Agent(kind=AgentKind.PROGRAM, program=self.name)

    @property
    def settings(self) -> RunSettings:
        if self.name in REAL:
            plugins = {"harness": {"path": f"{PLACE}/bin"}}
            return RunSettings(mounts={PLACE: str(INSTALLED.resolve())}, plugins=plugins)
        command = ["python3", tasks.AGENT, "{task_file}"]
        return RunSettings(plugins={"harness": {"command": command}})

    def script(self, seconds: int = 0) -> Script:
        shell = REAL.get(self.name, Shell())
        *first, last = tasks.commands(seconds)
        further = [self.further] if self.further is not None else []
        calls = [shell.call(command) for command in (*first, *further, last)]
        end = shell.call(SUBMIT) if self.name == "mini-swe-agent" else ScriptedTurn(content="Done.")
        return Script(conversations=(Conversation(variants=((*calls, end),)),))

    @asynccontextmanager
    async def served(self, folder: Path, seconds: int) -> AsyncIterator[ScriptServer]:
        server = ScriptServer(self.script(seconds), folder)
        try:
            await server.start()
            yield server
        finally:
            await server.kill()


SMALL = HarnessScript()
