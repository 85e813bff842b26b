"""A notebook and a script, which start the services that they need and end them."""

import asyncio
import fcntl
import sys
from pathlib import Path

import pytest

from docs.generate.notebook import executed
from tests.cli.command import run

SCRIPT = """
import clotho
from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Solution, ToolContext

WANTED = "yes"

def wanted(text: bytes) -> bool:
    return text == WANTED.encode()

class SayYesConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)

class SayYes(Environment):
    config_class = SayYesConfig

    async def get_next_item(self) -> Item | None:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "Write yes into said."

    def solution(self, item: Item) -> Solution:
        return Solution(command="printf yes > /work/said")

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float(wanted(ctx.read_bytes("/work/said") or b""))

if __name__ == "__main__":
    print(clotho.run(SayYes, agent="oracle", groups=1, group_size=1, progress=False).mean_reward)
"""
HELD = """
import socket, clotho
from clotho.environment import Environment

held = socket.socket()

class Unsendable(Environment):
    def format_prompt(self, item):
        return held.getsockname()

clotho.run(Unsendable, model="http://127.0.0.1:1")
"""


@pytest.mark.slow
async def test_the_notebook_of_the_docs_runs(tmp_path: Path) -> None:
    notebook = await asyncio.to_thread(executed, tmp_path)
    shown = [
        output.get("data", {}).get("text/plain")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]
    assert "1.0" in shown, "the oracle's mean reward"
    assert any(
        "text/html" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())
    )
    await asyncio.to_thread(wait_for_services, tmp_path)


@pytest.mark.slow
async def test_a_script_s_own_class_is_run_and_its_services_end(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = await run(sys.executable, "script.py", folder=tmp_path)
    assert (done.status, done.output.splitlines()[-1]) == (0, "1.0"), done.error
    # The script has waited for them: nothing holds the folder any more.
    with (tmp_path / ".clotho" / "services.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_a_class_that_needs_what_can_t_be_written_down_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(HELD)
    done = await run(sys.executable, "script.py", folder=tmp_path)
    assert done.status == 1
    assert "Unsendable uses 'held', which can't be sent to workers" in done.error


def wait_for_services(folder: Path) -> None:
    """The kernel is told to end, and its services with it."""
    with (folder / ".clotho" / "services.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
