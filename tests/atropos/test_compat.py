"""What environments of the in-memory design call, in this process: against real workflows and sandboxes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from atropos_adapter import (
    AgentResult,
    BudgetConfig,
    HermesAgentLoop,
    ToolContext,
    cleanup_vm,
    clear_task_env_overrides,
    register_task_env_overrides,
)
from clotho.errors import InvalidInput
from clotho.identifiers.keys import tools_key, turn_prefix
from clotho.plugins.atropos.compat.environment import EvaluationDistorted
from clotho.plugins.atropos.compat.tasks import open_tasks
from clotho.rollouts.group import ToolManifest
from clotho.runs.manifest import read_manifest
from clotho.testing.script import Conversation, Fault, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.atropos.compat.notes import Nameless, Notes, OtherNotes
from tests.atropos.inside import opened_inside
from tests.cluster import Cluster
from tests.support import eventually, step_of


def asking(prompt: str, command: str) -> Conversation:
    """One terminal call, and an end."""
    call = ScriptedCall(name="terminal", arguments={"command": command})
    turns = (ScriptedTurn(calls=(call,)), ScriptedTurn(content="Done."))
    return Conversation(match=prompt, variants=(turns,))


CONVERSATIONS = (
    asking("print much", "head -c 12000 /dev/zero | tr '\\0' x"),
    asking("say where", "pwd"),
    asking("take long", "sleep 60"),
)


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[str]:
    async with serving(ScriptedModel(Script(conversations=CONVERSATIONS))) as url:
        yield url


@pytest.fixture
async def notes(cluster: Cluster, model: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Notes]:
    async with opened_inside(cluster, Notes, model, monkeypatch) as env:
        yield env


async def driven(env: Notes, task: str, prompt: str, **fields: Any) -> AgentResult:
    """A rollout by hand, whose workspace is let go of."""
    loop = HermesAgentLoop(env.server, task_id=task, **fields)
    result = await loop.run([{"role": "user", "content": prompt}])
    ToolContext(task).cleanup()
    return result


def shown(result: AgentResult) -> str:
    """What the model was shown of its call."""
    return str(next(message["content"] for message in result.messages if message["role"] == "tool"))


async def test_another_backend_that_an_environment_asks_for_runs_here_and_is_said_to(
    notes: Notes, caplog: pytest.LogCaptureFixture, cluster: Cluster, model: str, monkeypatch: Any
) -> None:
    assert notes.config.terminal_backend == "modal", "it is what the environment asked for"
    assert notes.adapter_run.manifest.sandbox.backend.name == "local"
    caplog.clear()
    async with opened_inside(cluster, OtherNotes, model, monkeypatch, run="as-elsewhere"):
        assert "terminal_backend modal isn't configured here: commands run in local sandboxes" in caplog.text
    caplog.clear()
    async with opened_inside(
        cluster, OtherNotes, model, monkeypatch, run="as-here", terminal_backend="local"
    ):
        assert "terminal_backend" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "run"), [(Notes, "notes-of-tests"), (OtherNotes, "other-notes"), (Nameless, "nameless")]
)
async def test_a_run_has_its_environments_name(
    kind: type[Notes], run: str, cluster: Cluster, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_inside(cluster, kind, model, monkeypatch) as env:
        assert env.adapter_run.manifest.run == env.config.run == run
        assert await read_manifest(cluster.open_journal(), run) == env.adapter_run.manifest


@pytest.mark.slow
async def test_the_old_result_budget_bounds_what_models_are_shown(notes: Notes) -> None:
    asked = notes.config.build_budget_config()
    assert asked == BudgetConfig(turn_budget=50_000, tool_overrides={"terminal": 9_000})
    assert asked.resolve_threshold("terminal") == 9_000
    assert asked.resolve_threshold("read_file") == float("inf")
    settings = notes.adapter_run.manifest.tool_settings
    assert (settings.max_turn_chars, settings.result_chars) == (50_000, {"terminal": 9_000})
    assert "persisted-output" in shown(await driven(notes, "as-configured", "print much"))
    wider = BudgetConfig(tool_overrides={"terminal": 20_000}, preview_size=100)
    result = await driven(notes, "wider", "print much", budget_config=wider)
    assert len(json.loads(shown(result))["output"]) == 12_000


async def test_a_loop_offers_the_tools_that_it_is_given(notes: Notes, cluster: Cluster) -> None:
    schemas, names = notes._resolve_tools_for_group()
    assert names == {"terminal", "process", "read_file", "write_file", "patch", "search_files"}
    fewer = {"terminal", "read_file"}
    loop = HermesAgentLoop(notes.server, schemas, fewer, task_id="fewer-tools")
    await loop.run([{"role": "user", "content": "say where"}])
    group = open_tasks["fewer-tools"].group
    cleanup_vm("fewer-tools")
    offered = await cluster.open_journal().read_required(tools_key(group), ToolManifest)
    assert {tool.name for tool in offered.tools} == fewer
    described = {
        "type": "function",
        "function": {"name": "terminal", "description": "Mine", "parameters": {}},
    }
    with pytest.raises(InvalidInput, match="describe terminal otherwise"):
        HermesAgentLoop(notes.server, [described], {"terminal"}, task_id="another-terminal")


async def test_only_the_adapter_makes_its_environment_and_only_its_host_the_sandbox(
    notes: Notes, cluster: Cluster
) -> None:
    """Neither is tried in the process of the workflow first: it may be another one, on another host."""
    loop = HermesAgentLoop(notes.server, task_id="made-here")
    await loop.run([{"role": "user", "content": "say where"}])
    group = open_tasks["made-here"].group
    cleanup_vm("made-here")
    queues = notes.task_queues(notes.adapter_run.connections.settings)
    steps = (
        (group, "look up group, resolve tools", queues.environment.queue),
        (f"{group}/r0", "create sandbox", queues.sandbox.queue),
    )
    for workflow, step, queue in steps:
        history = await cluster.client.get_workflow_handle(workflow).fetch_history()
        made = [event for event in history.events if step_of(event) == step]
        assert [event.activity_task_scheduled_event_attributes.task_queue.name for event in made] == [queue]


async def test_a_tasks_overrides_say_where_its_commands_start(
    notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    register_task_env_overrides("elsewhere", {"cwd": "/tmp", "singularity_image": "tasks/one:1"})
    assert "ask for singularity_image tasks/one:1: without effect" in caplog.text
    assert json.loads(shown(await driven(notes, "elsewhere", "say where")))["output"].strip() == "/tmp"
    clear_task_env_overrides("elsewhere")
    assert json.loads(shown(await driven(notes, "cleared", "say where")))["output"].strip() == "/work"


async def test_a_task_that_is_given_up_ends_its_agent(notes: Notes, cluster: Cluster) -> None:
    loop = HermesAgentLoop(notes.server, task_id="given-up")
    running = asyncio.create_task(loop.run([{"role": "user", "content": "take long"}]))

    async def at_work() -> str | None:
        if (task := open_tasks.get("given-up")) is None:
            return None
        return task.group if await cluster.open_journal().keys(turn_prefix(f"{task.group}/r0")) else None

    group = await eventually(at_work, "the agent has had a turn")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    cleanup_vm("given-up")
    handle = cluster.client.get_workflow_handle(group)

    async def ended() -> bool:
        return (await handle.describe()).status is WorkflowExecutionStatus.CANCELED

    await eventually(ended, "the task's workflow is cancelled")


async def test_failures_that_an_evaluation_counts_as_the_policys_are_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that gives a task up, or catches what it raises, scores it 0: it was never the model's."""
    refusing = Script(conversations=CONVERSATIONS, faults=(Fault(kind="status", every=1, status=403),))
    model = ScriptedModel(refusing)

    async def asked_again() -> bool:
        return model.calls.requests.total() > 1

    class Impatient(Notes):
        async def evaluate(self, *_: Any, **__: Any) -> None:
            loop = HermesAgentLoop(self.server, task_id="impatient")
            running = asyncio.create_task(loop.run([{"role": "user", "content": "say where"}]))
            await eventually(asked_again, "a second attempt, after the first has failed")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            cleanup_vm("impatient")

    async with (
        serving(model) as url,
        opened_inside(cluster, Impatient, url, monkeypatch, run="impatient") as env,
    ):
        with pytest.raises(EvaluationDistorted, match=r"1 of the evaluation's rollouts failed.*answers 403"):
            await env.evaluate()
