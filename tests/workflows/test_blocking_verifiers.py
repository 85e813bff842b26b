"""Verifiers that keep their thread: their step goes on as a regular activity, and they run once."""

from pathlib import Path

import pytest

from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import events_of, regular_steps
from tests.workflows.scripts import say
from tests.workflows.test_local_steps import not_done_here, played, score_of


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Sleeps", "NeverYields"])
async def test_a_verifier_that_keeps_its_thread_runs_once(
    cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    run, runs = f"verifier-{kind.lower()}", tmp_path / "runs"
    environment = f"tests.environments.blocking_verifiers:{kind}"
    async with serving(ScriptedModel(played(say("Done.")))) as url:
        handle = await cluster.start(run, url, environment=environment, overrides={"runs": str(runs)})
        await handle.result()
    rollout = f"{run}/g000000/r0"
    history = await events_of(cluster, rollout)
    assert "verify" in not_done_here(history), "tried in the workflow's process"
    assert "verify" in regular_steps(history), "and left to a regular activity"
    assert runs.read_text() == "ran\n"
    assert await score_of(cluster, rollout) == 1.0
