"""Real harnesses in sandboxes, with a scripted model: `make harnesses` installs them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clotho.identifiers.keys import agent_key, asked_tools_key, lease_key
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.asked import AskedTools
from clotho.rollouts.transcript import read_transcript
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Question, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import ONE_FILE
from tests.workflows.holding import Holding, after_turns
from tests.workflows.scripts import say

INSTALLED = Path(__file__).parents[2] / ".venv/harnesses"
PLACE = "/opt/agents"
MOUNTED = RunSettings(mounts={PLACE: str(INSTALLED.resolve())}, plugins={"harness": {"path": f"{PLACE}/bin"}})
GROUP = re.compile(r"/g(\d+)/")
TASKS = (
    ("echo a >> log", "wc -l < log", "echo -n 0.75 > score"),
    (
        "mkdir notes && echo blue lamp > notes/a",
        "grep -c lamp notes/a",
        "cp notes/a b && echo 0.5 > score",
    ),
    ("printf '%s\\n' 3 1 2 > numbers", "sort -n numbers | head -1", "wc -l numbers; echo 0.25 > score"),
)
"""The commands of each task's model; the last one earns its reward."""
SCORES = (0.75, 0.5, 0.25)
SHELLS: Mapping[str, tuple[str, str]] = {
    "mini-swe-agent": ("bash", "command"),
    "codex": ("exec_command", "cmd"),
    "claude-code": ("Bash", "command"),
    "opencode": ("bash", "command"),
}
"""The tool with which each harness offers a shell, and the argument that is the command."""
PROGRAMS = {"mini-swe-agent": "mini", "codex": "codex", "claude-code": "claude", "opencode": "opencode"}
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

pytestmark = pytest.mark.slow


def turns(agent: str, commands: Sequence[str]) -> tuple[ScriptedTurn, ...]:
    tool, argument = SHELLS[agent]

    def call(command: str) -> ScriptedTurn:
        fields = {"description": "step"} if agent in ("claude-code", "opencode") else {}
        return ScriptedTurn(calls=(ScriptedCall(name=tool, arguments={argument: command, **fields}),))

    return (*map(call, commands), call(SUBMIT) if agent == "mini-swe-agent" else say("Done."))


def script(agent: str) -> Script:
    return script_of(turns(agent, TASKS[0]))


def script_of(turns: tuple[ScriptedTurn, ...]) -> Script:
    return Script(conversations=(Conversation(variants=(turns,)),))


def require(agent: str) -> None:
    if not (INSTALLED / "bin" / PROGRAMS[agent]).exists():
        pytest.skip(f"{agent} isn't installed: make harnesses")


async def start(
    cluster: Cluster, agent: str, name: str, url: str, settings: RunSettings = MOUNTED, **order: Any
) -> Any:
    require(agent)
    program = Agent(kind=AgentKind.PROGRAM, program=agent)
    return await cluster.start(name, url, environment=ONE_FILE, agent=program, settings=settings, **order)


@pytest.mark.parametrize("agent", SHELLS)
async def test_it_solves_three_tasks(cluster: Cluster, agent: str) -> None:
    def solve(question: Question) -> ScriptedTurn:
        found = GROUP.search(question.key)
        return turns(agent, TASKS[int(found[1]) if found else 0])[question.turn]

    model, name = ScriptedModel(script(agent), policy=solve), f"real-{agent}"
    async with serving(model) as url:
        await (await start(cluster, agent, name, url, groups=len(TASKS))).result()
    assert set(model.calls.requests.values()) == {1}
    journal = cluster.open_journal()
    for number, score in enumerate(SCORES):
        rollout = f"{name}/g{number:06}/r0"
        end = await read_end(journal, rollout)
        assert end is not None and end.summary.score == score
        asked = [step.asked for step in (await read_transcript(journal, rollout, end.summary.turns)).steps]
        calls = [each for each in asked if each is not None and not each.aside]
        goes_on = [(each.extends, each.kept > 0) for each in calls[1:]]
        assert goes_on == [(turn, True) for turn in range(len(TASKS[number]))], "each extends the one before"


@pytest.mark.parametrize("agent", SHELLS)
async def test_its_calls_are_answered_from_the_journal_after_a_loss(cluster: Cluster, agent: str) -> None:
    await lose_sandbox(cluster, agent, f"real-lost-{agent}", script(agent))


async def test_codex_patches_files_by_a_tool_that_takes_plain_text(cluster: Cluster) -> None:
    """It offers the tool to models alone that it knows by name."""
    patch = "*** Begin Patch\n*** Add File: score\n+0.75\n*** End Patch\n"
    said = (
        ScriptedTurn(calls=(ScriptedCall(name="apply_patch", arguments={"input": patch}),)),
        *turns("codex", ("cat score", "ls")),
    )
    name = "real-codex-patch"
    rollout = await lose_sandbox(cluster, "codex", name, script_of(said), model="gpt-5.5")
    journal = cluster.open_journal()
    steps = (await read_transcript(journal, rollout, len(said))).steps
    (patched,), (shown,) = (step.calls for step in steps[:2])
    assert "A score" in patched.content and "0.75" in shown.content
    asked = steps[0].asked
    assert asked is not None
    tools = await journal.read_required(asked_tools_key(rollout, asked.tools), AskedTools)
    assert tools.freeform == ("apply_patch",)


async def lose_sandbox(cluster: Cluster, agent: str, name: str, script: Script, **order: Any) -> str:
    """Play a task to the end whose sandbox is lost in the third call; returns the rollout."""
    model, rollout = Holding(script, held=after_turns(2)), f"{name}/g000000/r0"
    async with serving(model) as url:
        handle = await start(cluster, agent, name, url, **order)
        await model.held(1)
        await cluster.sandboxes().destroy(lease_key(rollout, 0))
        model.release.set()
        await handle.result()
    assert set(model.calls.requests.values()) == {1}
    entry = await cluster.open_journal().read_required(agent_key(rollout, 1), ProgramEntry)
    assert entry.diverged_at is None and entry.matched >= 3
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.score == 0.75
    return rollout
