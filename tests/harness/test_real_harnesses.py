"""Real harnesses in sandboxes, with a scripted model: `make harnesses` installs them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clotho.identifiers.rollout_keys import agent_key, lease_key
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.transcript import read_transcript
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import ONE_FILE
from tests.workflows.holding import Holding, after_turns
from tests.workflows.scripts import say

INSTALLED = Path(__file__).parents[2] / ".venv/harnesses"
PLACE = "/opt/agents"
COMMANDS = ("echo a >> log", "wc -l < log", "echo -n 0.75 > score")
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


def script(agent: str) -> Script:
    tool, argument = SHELLS[agent]

    def call(command: str) -> ScriptedTurn:
        fields = {"description": "step"} if agent in ("claude-code", "opencode") else {}
        return ScriptedTurn(calls=(ScriptedCall(name=tool, arguments={argument: command, **fields}),))

    last = call(SUBMIT) if agent == "mini-swe-agent" else say("Done.")
    return Script(conversations=(Conversation(variants=((*map(call, COMMANDS), last),)),))


async def start(cluster: Cluster, agent: str, name: str, url: str) -> Any:
    if not (INSTALLED / "bin" / PROGRAMS[agent]).exists():
        pytest.skip(f"{agent} isn't installed: make harnesses")
    settings = RunSettings(
        mounts={PLACE: str(INSTALLED.resolve())}, plugins={"harness": {"path": f"{PLACE}/bin"}}
    )
    program = Agent(kind=AgentKind.PROGRAM, program=agent)
    return await cluster.start(name, url, environment=ONE_FILE, agent=program, settings=settings)


@pytest.mark.parametrize("agent", SHELLS)
async def test_it_solves_a_task(cluster: Cluster, agent: str) -> None:
    model, name = ScriptedModel(script(agent)), f"real-{agent}"
    async with serving(model) as url:
        await (await start(cluster, agent, name, url)).result()
    rollout, journal = f"{name}/g000000/r0", cluster.open_journal()
    end = await read_end(journal, rollout)
    assert end is not None and end.summary.score == 0.75
    assert set(model.calls.requests.values()) == {1}
    asked = [step.asked for step in (await read_transcript(journal, rollout, end.summary.turns)).steps]
    calls = [each for each in asked if each is not None and not each.aside]
    goes_on = [(each.extends, each.kept > 0) for each in calls[1:]]
    assert goes_on == [(turn, True) for turn in range(len(COMMANDS))], "each call extends the one before"


@pytest.mark.parametrize("agent", SHELLS)
async def test_its_calls_are_answered_from_the_journal_after_a_loss(cluster: Cluster, agent: str) -> None:
    model, name = Holding(script(agent), held=after_turns(2)), f"real-lost-{agent}"
    rollout = f"{name}/g000000/r0"
    async with serving(model) as url:
        handle = await start(cluster, agent, name, url)
        await model.held(1)
        await cluster.sandboxes().destroy(lease_key(rollout, 0))
        model.release.set()
        await handle.result()
    assert set(model.calls.requests.values()) == {1}
    entry = await cluster.open_journal().read_required(agent_key(rollout, 1), ProgramEntry)
    assert entry.diverged_at is None and entry.matched >= 3
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.score == 0.75
