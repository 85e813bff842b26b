"""The test kit, as an author's pytest in a folder of its own uses it."""

import re
import sys
from pathlib import Path

import pytest

from tests.cli.command import Finished, run

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"
WORD_COUNT = Path(__file__).parents[2] / "environments" / "word_count.py"

ENVIRONMENT = '''
from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class GuardedConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class Guarded(Environment):
    """The reward is what a hidden script prints."""

    config_class = GuardedConfig

    async def get_next_item(self) -> Item | None:
        return {"name": "first"}

    def format_prompt(self, item: Item) -> str:
        return "Write the answer to ~/answer."

    def workspace_files(self, item: Item) -> dict[str, str | bytes]:
        return {"/work/a.txt": "text", "b.bin": bytes(range(256))}

    def hidden_files(self, item: Item) -> dict[str, str]:
        return {"check.sh": 'grep -cx right ~/answer; pgrep -c sleep; exit 0'}

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        if result.turns_used > 3:
            raise ValueError("the author's mistake")
        said = await ctx.aio.terminal('bash "$CLOTHO_HIDDEN_FILES/check.sh"')
        return Reward(
            score=float(said["output"].split()[0]),
            breakdown={"errors": len(result.tool_errors), "turns": result.turns_used},
            log=said["output"],
        )
'''

TESTS = """
import asyncio

import pytest
from clotho.environment import ToolContext
from clotho.testing import ScriptedCall, ScriptedTurn, sandboxed_context
from guarded import Guarded, GuardedConfig


def terminal(command):
    return ScriptedCall(name="terminal", arguments={"command": command})


def test_the_agent_s_files_and_processes(sandboxed):
    task = sandboxed(Guarded)
    assert task.item == {"name": "first"}
    assert task.agent.read_bytes("b.bin") == bytes(range(256))
    task.agent.terminal("cd /tmp; sleep 600 & echo right > ~/answer")
    assert task.agent.terminal("pwd")["output"].strip() == "/tmp"
    assert task.reward().score == 1.0
    assert task.reward().log.split() == ["1", "0"]  # again, and the agent's processes have ended
    assert task.verifier().terminal("pwd")["output"].strip() == "/tmp"


def test_what_is_played_is_what_the_verifier_is_told(sandboxed):
    task = sandboxed(Guarded(GuardedConfig()))
    result = task.play(
        terminal("echo wrong > ~/answer"),
        ScriptedCall(name="write_file", arguments={"path": "x", "content": "y"}),
        ScriptedTurn(content="Done.", reasoning="Hm."),
    )
    assert [message["role"] for message in result.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert "Unknown tool 'write_file'" in result.tool_errors[0].error
    assert result.finished_naturally and result.reasoning_per_turn == [None, None, "Hm."]
    reward = task.reward()
    assert (reward.score, reward.breakdown) == (0.0, {"errors": 1.0, "turns": 3.0})


def test_what_the_author_raises_is_raised(sandboxed):
    task = sandboxed(Guarded)
    task.play(*[terminal("true")] * 4)
    with pytest.raises(ValueError, match="the author's mistake"):
        task.reward()


def test_within_a_running_loop():
    async def check():
        with sandboxed_context(Guarded, {"name": "own"}) as task:
            await task.agent.aio.terminal("echo right > ~/answer")
            assert task.reward().score == 1.0

    asyncio.run(check())
"""


async def pytest_in(folder: Path) -> Finished:
    variables = {"CLOTHO_SANDBOX__ROOT": str(folder / "sandboxes")}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder))
    return await run(*command, folder=folder, environment=variables)


@pytest.mark.slow
async def test_an_author_tests_an_environment(folder: Path) -> None:
    own = folder / "author-kit"
    own.mkdir(mode=0o711)
    (own / "guarded.py").write_text(ENVIRONMENT)
    (own / "conftest.py").write_text('pytest_plugins = ["clotho.testing.plugin"]\n')
    (own / "test_guarded.py").write_text(TESTS)
    done = await pytest_in(own)
    assert done.status == 0, done.output
    assert "4 passed" in done.output
    assert list((own / "sandboxes").iterdir()) == []


@pytest.mark.slow
async def test_the_documented_examples_pass(folder: Path) -> None:
    own = folder / "documented-kit"
    own.mkdir(mode=0o711)
    (own / "word_count.py").write_text(WORD_COUNT.read_text())
    (own / "conftest.py").write_text('pytest_plugins = ["clotho.testing.plugin"]\n')
    examples = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (own / "test_documented.py").write_text(examples[0] + examples[2])
    done = await pytest_in(own)
    assert done.status == 0, done.output
    assert "2 passed" in done.output


def test_public_names_have_docstrings() -> None:
    import clotho.testing as kit

    assert [name for name in kit.__all__ if not (getattr(kit, name).__doc__ or "").strip()] == []
