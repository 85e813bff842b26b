"""What commands say at their ends: what a run has come to, why a rollout failed, and what to do next."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.testing.scripted_model import ScriptedModel, serving
from tests.api.test_runs import scoring
from tests.cli.command import Finished, clotho, clotho_many
from tests.cluster import Cluster
from tests.support import ONE_FILE

RAISES = "tests.environments.failing_verifiers:Raises"


def place(cluster: Cluster) -> tuple[str, ...]:
    return "--store", str(cluster.store), "--temporal", cluster.address


@pytest.fixture(scope="module")
async def ended(cluster: Cluster) -> AsyncIterator[dict[str, Finished]]:
    """A run that is scored, and one whose verifier raises."""
    async with serving(ScriptedModel(scoring(1.0, 0.5))) as url:
        sizes = ("--model", url, "--groups", "1", "--group-size", "2", *place(cluster))
        yield {
            "good": await clotho("run", ONE_FILE, "--run", "ends-good", *sizes),
            "bad": await clotho("run", RAISES, "--run", "ends-bad", *sizes),
        }


@pytest.fixture(scope="module")
async def said(
    ended: dict[str, Finished], cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Finished]:
    where, store = place(cluster), place(cluster)[:2]
    return await clotho_many(
        {
            "status": ("status", "ends-good", *where),
            "json": ("status", "ends-good", "--json", *where),
            "runs": ("status", *where),
            "show": ("show", "ends-good", *store),
            "failed": ("show", "ends-bad/g000000/r0", *store),
            "rollout": ("show", "ends-good/g000000/r0", "--json", *store),
            "bad": ("status", "ends-bad", *where),
            "retry": ("retry", "ends-good", *where),
            "tokens": ("export", "ends-good", "--format", "tokens", *store),
        },
        Path(tmp_path_factory.mktemp("ends")),
    )


async def test_a_run_ends_with_its_figures_and_the_next_commands(ended: dict[str, Finished]) -> None:
    lines = ended["good"].output
    assert "1/1 groups scored · 2 rollouts" in lines
    assert "reward  mean 0.750 · pass@1 0.500" in lines
    assert "4 turns · 2 tool calls" in lines
    assert "show ends-good" in lines and "export ends-good" in lines


async def test_status_says_the_same(said: dict[str, Finished]) -> None:
    for shown in (said["status"].output, said["show"].output):
        assert "ends-good · scored" in shown or "ends-good · -" in shown
        assert "mean 0.750 · pass@1 0.500" in shown
    assert "checkpoints" not in said["status"].output, "settings that are as by default aren't told"
    summary = json.loads(said["json"].output)
    assert (summary["state"], summary["scored"], summary["figures"]["reward"]["mean"]) == ("scored", 1, 0.75)
    row = next(line for line in said["runs"].output.splitlines() if "ends-good" in line)
    assert "1/1 × 2" in row and "0.750" in row


async def test_a_failed_rollout_ends_with_why(ended: dict[str, Finished], said: dict[str, Finished]) -> None:
    assert ended["bad"].status == 1
    assert "EnvironmentFailed" in said["bad"].output
    shown = said["failed"].output
    assert "── failed: EnvironmentFailed" in shown
    assert "ValueError: the author's mistake" in shown
    assert "failing_verifiers.py" in shown, "the author's traceback"
    assert "clotho retry ends-bad/g000000/r0" in shown


async def test_what_is_scored_has_nothing_to_retry(said: dict[str, Finished]) -> None:
    assert "there is nothing to retry" in said["retry"].complaint


async def test_a_run_in_chat_mode_has_no_tokens(said: dict[str, Finished]) -> None:
    assert "--inference tokens" in said["tokens"].complaint


async def test_a_rollout_is_printed_for_programs(said: dict[str, Finished]) -> None:
    record = json.loads(said["rollout"].output)
    assert record["reward"]["score"] == 1.0
    assert len(record["transcript"]["steps"]) == 2


async def test_workers_of_another_store_are_told(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    other = await clotho("status", "--store", tmp_path / "store", "--temporal", cluster.address)
    assert "those at " in other.output and "serve another: give it with --store" in other.output
