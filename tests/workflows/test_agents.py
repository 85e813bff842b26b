"""Rollouts in which no model acts: they are durable, journalled and scored as others are."""

import pytest
from temporalio.client import WorkflowFailureError

from clotho.identifiers.ids import campaign_id
from clotho.models.messages import ChatMessage
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.groups import scored_groups
from clotho.runs.request import RunRequest, run_manifest
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import FAST, Cluster
from tests.support import start
from tests.workflows.scripts import run, say, scoring

WRITE = "printf one > /work/answer"
SOLVED = "tests.environments.solved_files:SolvedFiles"


async def start_agent(
    cluster: Cluster, run: str, agent: Agent, environment: str = SOLVED, groups: int = 2, size: int = 1
) -> CampaignHandle:
    order = RunRequest(
        manifest=run_manifest(environment, run, str(agent.kind), agent=agent, group_size=size),
        endpoint=None,
        groups=groups,
        max_open_groups=4,
        task_queues=FAST,
    )
    return await start_campaign(cluster.client, cluster.open_journal(), order)


async def scores(cluster: Cluster, run: str) -> list[list[float]]:
    entries = await scored_groups(cluster.open_journal(), run)
    return [[sibling.score for sibling in entry.siblings] for _, entry in entries]


async def failure(cluster: Cluster, run: str) -> str:
    """The reason of the first failed group."""
    handle = cluster.client.get_workflow_handle(campaign_id(run))
    progress = await handle.query("progress", result_type=CampaignProgress)
    return str(progress.failures[0].reason)


async def transcript(cluster: Cluster, rollout: str, turns: int) -> Transcript:
    return await read_transcript(cluster.open_journal(), rollout, turns)


@pytest.mark.slow
async def test_the_oracle_runs_the_solution_and_nop_does_nothing(cluster: Cluster) -> None:
    oracle = await start_agent(cluster, "oracle", Agent(kind=AgentKind.ORACLE))
    nop = await start_agent(cluster, "nop", Agent(kind=AgentKind.NOP))
    assert (await oracle.result()).turns == 4
    assert (await nop.result()).turns == 2
    assert await scores(cluster, "oracle") == [[1.0], [1.0]]
    assert await scores(cluster, "nop") == [[0.0], [0.0]]
    done = await transcript(cluster, "oracle/g000001/r0", 2)
    assert [step.turn.sampled and step.turn.sampled.model for step in done.steps] == ["oracle"] * 2
    assert done.prompt.messages[0].content == "write two"


async def test_an_item_without_a_solution_has_no_reward(cluster: Cluster) -> None:
    handle = await start_agent(cluster, "unsolved", Agent(kind=AgentKind.ORACLE), groups=3)
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert await scores(cluster, "unsolved") == [[1.0], [1.0]]
    assert "nobody knows" in await failure(cluster, "unsolved")


async def test_a_recorded_run_is_replayed_turn_by_turn(cluster: Cluster) -> None:
    async with serving(ScriptedModel(Script(conversations=(scoring(0.25, 0.75),)))) as url:
        await (await start(cluster, "recorded", url, groups=2, group_size=2)).result()
    environment = "tests.environments.one_file:OneFile"
    agent = Agent(kind=AgentKind.REPLAY, replays="recorded")
    await (await start_agent(cluster, "replayed-agent", agent, environment, size=2)).result()
    assert await scores(cluster, "replayed-agent") == [[0.25, 0.75]] * 2

    def said(found: Transcript) -> list[ChatMessage]:
        return [step.turn.sampled.message for step in found.steps if step.turn.sampled is not None]

    first = await transcript(cluster, "recorded/g000001/r1", 2)
    assert said(await transcript(cluster, "replayed-agent/g000001/r1", 2)) == said(first)


@pytest.mark.parametrize(
    ("replays", "environment", "said"),
    [
        ("nothing", SOLVED, "there is no scored group nothing/g000000"),
        ("rolled", SOLVED, "rolled another item out"),
    ],
)
async def test_only_what_was_recorded_is_replayed(
    cluster: Cluster, replays: str, environment: str, said: str
) -> None:
    async with serving(ScriptedModel(Script(conversations=(scoring(0.5),)))) as url:
        await (await start(cluster, "rolled", url)).result()
    agent = Agent(kind=AgentKind.REPLAY, replays=replays)
    handle = await start_agent(cluster, f"of-{replays}", agent, environment, groups=1)
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert said in await failure(cluster, f"of-{replays}")


async def test_a_command_ends_with_the_items_time(cluster: Cluster) -> None:
    script = Script(conversations=(Conversation(variants=((run(f"{WRITE}; sleep 600"), say("Done.")),)),))
    async with serving(ScriptedModel(script)) as url:
        handle = await cluster.start("timed", url, environment="tests.environments.solved_files:TimedFiles")
        await handle.result()
    [(_, entry)] = await scored_groups(cluster.open_journal(), "timed")
    [end] = entry.siblings
    assert (end.score, end.turns, end.ending.limit) == (1.0, 1, "max_active_seconds")
    assert end.active_seconds < 110, "commands may take longer"
