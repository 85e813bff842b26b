"""Rollouts that call the tools of MCP servers."""

import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from clotho.identifiers.keys import call_key, tools_key
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import ToolManifest
from clotho.runs.groups import scored_groups
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.scripts import run, say

SERVER = Path(__file__).parents[1] / "tools" / "mcp_server.py"
ASKS_SERVER = "tests.environments.asks_server:AsksServer"


def asked(folder: Path, *how: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a run whose rollouts have a server of notes."""
    command = [sys.executable, "-S", str(SERVER), str(folder), *how]
    server = {"command": command, "where": "host", **settings}
    return {"enabled_toolsets": ["terminal", "mcp-notes"], "plugins": {"mcp": {"servers": {"notes": server}}}}


def call(tool: str, text: str) -> ScriptedTurn:
    return ScriptedTurn(calls=(ScriptedCall(name=f"mcp_notes_{tool}", arguments={"text": text}),))


SOLUTIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "alice": (("transfer", {"source": "alice", "target": "bob", "amount": 30}),),
    "ann and ben": (("transfer", {"source": "ann", "target": "ben", "amount": "25"}),),
    "dora": (
        ("open_account", {"name": "dora"}),
        ("transfer", {"source": "fay", "target": "dora", "amount": 15}),
    ),
    "no coins": (("close_account", {"name": "hal"}), ("close_account", {"name": "jon"})),
    "leo": (
        ("transfer", {"source": "leo", "target": "mia", "amount": 20}),
        ("transfer", {"source": "leo", "target": "ned", "amount": 14}),
        ("close_account", {"name": "leo"}),
    ),
}


def solving(match: str) -> Conversation:
    """The first sibling does what is asked for, the second takes a wrong account."""
    calls = tuple(
        ScriptedCall(name=f"mcp_ledger_{tool}", arguments=given) for tool, given in SOLUTIONS[match]
    )
    wrong = ScriptedCall(name="mcp_ledger_transfer", arguments={"source": "a", "target": "b", "amount": 1})
    right, failing = ScriptedTurn(calls=calls), ScriptedTurn(calls=(wrong,))
    return Conversation(match=match, variants=((right, say("Done.")), (failing, say("Done."))))


async def test_the_tasks_of_the_ledger_are_solved_in_the_sandbox(cluster: Cluster) -> None:
    model = ScriptedModel(Script(conversations=tuple(map(solving, SOLUTIONS))))
    async with serving(model) as url:
        handle = await cluster.start(
            "mcp-tasks", url, environment="mcp_tasks", model="scripted", groups=9, group_size=2
        )
        await handle.result()
    groups = await scored_groups(cluster.open_journal(), "mcp-tasks")
    assert [[one.score for one in entry.siblings] for _, entry in groups] == [[1.0, 0.0]] * 5
    entry = await cluster.open_journal().read_required(call_key("mcp-tasks/g000000/r1", "0000-00"), CallEntry)
    assert entry.error is not None and "no account" in entry.content


def script(*turns: ScriptedTurn) -> ScriptedModel:
    return ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))


async def shown(cluster: Cluster, name: str, number: str) -> str:
    entry = await cluster.open_journal().read_required(call_key(f"{name}/g000000/r0", number), CallEntry)
    return entry.content


async def test_a_server_keeps_its_state_through_a_rollout(cluster: Cluster, tmp_path: Path) -> None:
    """Its tools are in the group's manifest, with where they come from."""
    turns = (call("add_note", "a"), run("echo -n 1 > /work/score"), call("add_note", "b"), say("Done."))
    async with serving(script(*turns)) as url:
        handle = await start(cluster, "mcp-kept", url, overrides=asked(tmp_path))
        progress = await handle.result()
    assert progress.rollouts == 1
    assert await shown(cluster, "mcp-kept", "0000-00") == '{"result": "1 notes"}'
    assert await shown(cluster, "mcp-kept", "0002-00") == '{"result": "2 notes"}'
    tools = await cluster.open_journal().read_required(tools_key("mcp-kept/g000000"), ToolManifest)
    offered = tools.offered("mcp_notes_look_up")
    assert offered is not None and offered.place is not None
    assert offered.place.plugin == "mcp" and offered.place.at == {"server": "notes", "tool": "look-up"}
    assert tools.toolsets == ("mcp-notes", "terminal")


@pytest.mark.slow
async def test_a_call_whose_worker_died_is_not_made_again(private_cluster: Cluster, tmp_path: Path) -> None:
    cluster = private_cluster
    worker = await cluster.start_worker()

    async def called() -> bool:
        return (tmp_path / "calls").exists()

    async with serving(script(call("misbehave", "hang"), call("add_note", "a"), say("Done."))) as url:
        handle = await start(cluster, "mcp-died", url, overrides=asked(tmp_path))
        await eventually(called, "the call was made")
        await worker.kill()
        await cluster.start_worker()
        await handle.result()
    assert "wasn't made again" in await shown(cluster, "mcp-died", "0000-00")
    assert await shown(cluster, "mcp-died", "0001-00") == '{"result": "1 notes"}'
    assert (tmp_path / "calls").read_text().splitlines() == ["misbehave hang", "add_note a"]


async def test_a_server_that_changed_its_tools_fails_the_group(cluster: Cluster, tmp_path: Path) -> None:
    async with serving(script(call("add_note", "a"), say("Done."))) as url:
        handle = await start(cluster, "mcp-changed", url, overrides=asked(tmp_path, "changes"))
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    assert "changed its tool add_note since the group began" in str(raised.value.cause)
    assert not (tmp_path / "calls").exists()


@pytest.mark.slow
async def test_a_verification_that_was_interrupted_in_a_call_begins_anew(
    private_cluster: Cluster, tmp_path: Path
) -> None:
    """The reward is neither lost nor computed from a call without an answer, and no call is made twice in one."""
    cluster = private_cluster
    worker = await cluster.start_worker()
    calls = tmp_path / "calls"

    async def called() -> bool:
        return calls.exists()

    asks = {"plugins": asked(tmp_path)["plugins"], "calls": str(calls)}
    async with serving(script(say("Done."))) as url:
        handle = await cluster.start("mcp-verified", url, environment=ASKS_SERVER, overrides=asks)
        await eventually(called, "the reward's call was made")
        await worker.kill()
        await cluster.start_worker()
        await handle.result()
    [(_, group)] = await scored_groups(cluster.open_journal(), "mcp-verified")
    assert [one.score for one in group.siblings] == [1.0]
    assert calls.read_text().splitlines() == ["misbehave hang", "misbehave noise"]
