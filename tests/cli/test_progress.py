"""The progress of a run in `clotho run` and `clotho status` while it goes on."""

import time

import pytest

from clotho.cli.progress import TimeLeft, View, left_text, progress_line
from clotho.config import TemporalSettings
from clotho.embedded.temporal_server import TemporalServer
from clotho.rollouts.campaign import CampaignProgress
from clotho.runs.counts import RunCounts
from clotho.runs.operations import Operations
from clotho.runs.targets import Target
from clotho.temporal.connection import connect
from clotho.testing.script import Conversation, Question, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho
from tests.cli.held import held
from tests.cluster import Cluster, register
from tests.support import eventually, start
from tests.workflows.scripts import run, say

EMPTY = Script(conversations=(Conversation(variants=((say("Done."),),)),))


def plays(question: Question) -> ScriptedTurn:
    """Item 0 is done at once. Of item 1, the first sibling fails in its verifier, and the second one waits."""
    if question.turn == 2:
        return say("Done.")
    if question.turn == 1:
        return held("true") if "task 1" in question.prompt and question.sibling == 1 else run("true")
    broken = "task 1" in question.prompt and question.sibling == 0
    return run(f"echo -n {'nonsense' if broken else 1} > /work/score")


def is_listed(runs: str, state: str) -> bool:
    """Whether the run has this state in the table of all runs, with one of its two groups scored."""
    return any(
        line.startswith(f"│ counted │ {state} ") and "│ 1/2 × 2 " in line for line in runs.splitlines()
    )


async def status(cluster: Cluster, *options: str, **variables: str) -> Finished:
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    environment = {"CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace, **variables}
    answer = await clotho("status", *options, *place, environment=environment)
    assert answer.status == 0, answer.error
    return answer


@pytest.mark.slow
async def test_work_is_counted_while_groups_run_and_failures_and_pauses_show(
    private_cluster: Cluster, temporal: TemporalServer
) -> None:
    cluster = private_cluster
    await cluster.start_worker()
    async with serving(ScriptedModel(EMPTY, policy=plays)) as url:
        await start(cluster, "counted", url, groups=2, group_size=2)

        async def shows(text: str) -> bool:
            return text in (await status(cluster, "counted")).output

        line = "1/2 groups scored, 1 running, 0 failed; 2/4 (1 failed) rollouts, 11 turns, 7 tool calls"

        async def failed_in_a_running_group() -> bool:
            return await shows("2/4 (1 failed) rollouts")

        await eventually(failed_in_a_running_group, "a failed rollout of a group that runs")
        await eventually(lambda: shows(line), "its sibling at work in its last call")
        assert "mean reward 1.000" in (await status(cluster, "counted")).output

        async def is_served() -> bool:
            runs = (await status(cluster)).output
            alive = f"alive for this store and the Temporal server at {cluster.address}"
            return is_listed(runs, "running") and alive in runs

        await eventually(is_served, "the run and its workers")

        where = ("--store", str(cluster.store), "--temporal", cluster.address)
        namespace = {"CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace}
        cancelled = await clotho("cancel", "counted", *where, environment=namespace)
        assert cancelled.status == 0

        async def is_cancelled() -> bool:
            return is_listed((await status(cluster)).output, "cancelled")

        await eventually(is_cancelled, "the run's end")
        retried = await clotho("retry", "counted", *where, environment=namespace)
        assert "was started again" in retried.output
        await eventually(failed_in_a_running_group, "the same counts after a retry")
        assert "mean reward 1.000" in (await status(cluster, "counted")).output

        operations = Operations(cluster.open_journal(), cluster.client)
        await operations.pause(Target.named("counted"))

        async def is_paused() -> bool:
            return await shows("1/2 groups scored, 1 paused")

        await eventually(is_paused, "the pause to show")

        async def is_listed_as_paused() -> bool:
            return is_listed((await status(cluster)).output, "paused")

        await eventually(is_listed_as_paused, "the pause in the list of runs")
        await cluster.client.get_workflow_handle("counted/~campaign").terminate()

    elsewhere = TemporalSettings(address=temporal.address, namespace="elsewhere")
    await register(await connect(elsewhere))

    async def is_told_from_there() -> bool:
        told = (await status(cluster, CLOTHO_TEMPORAL__NAMESPACE="elsewhere")).output
        return "none of which serves the Temporal server at" in told and "not in this Temporal" in told

    await eventually(is_told_from_there, "another namespace, which knows neither run nor workers")


def test_the_time_left_is_told_by_the_rollouts_scored_since_it_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    time_left, progress = TimeLeft(), CampaignProgress(groups=10, scored=5, running=2)
    view = View(progress, RunCounts(rollouts=20), group_size=4)
    assert time_left.seconds_left(view) is None
    clock = 160.0
    later = View(progress, RunCounts(rollouts=24), group_size=4)
    assert time_left.seconds_left(later) == pytest.approx(16 * 60 / 4)
    paused = View(progress.model_copy(update={"paused": "by hand"}), RunCounts(rollouts=24), group_size=4)
    assert time_left.seconds_left(paused) is None
    assert "5/10 groups scored, 2 paused, 0 failed; 24/40 rollouts" in progress_line(paused)
    assert [left_text(View(seconds_left=seconds)) for seconds in (None, 45.4, 240, 7200)] == [
        "-",
        "about 45 s",
        "about 4 min",
        "about 2.0 h",
    ]
