"""`clotho run --dry-run`: an estimate from rollouts that aren't kept, or from those that the run has."""

import re
from pathlib import Path

import pytest

from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho
from tests.cluster import Cluster
from tests.support import ONE_FILE, start

ANSWER = Script(conversations=(Conversation(variants=((ScriptedTurn(content="Done."),),)),))


def figures(done: Finished, row: str) -> list[float]:
    """The numbers of a row of the table."""
    assert (done.status, done.error) == (0, ""), done
    (line,) = re.findall(rf"{row}\s(.*)", done.output)
    return [float(figure.replace(",", "")) for figure in re.findall(r"[\d.,]+", line)]


@pytest.fixture
async def rolled_out(cluster: Cluster) -> ScriptedModel:
    """A model that nobody has asked since a run of two groups was scored."""
    model = ScriptedModel(ANSWER)
    async with serving(model) as url:
        await (await start(cluster, "dry-scored", url, groups=2, group_size=2)).result()
    return ScriptedModel(ANSWER)


@pytest.mark.slow
async def test_three_rollouts_are_tried_and_nothing_is_kept(folder: Path) -> None:
    own = folder / "dry-run"
    own.mkdir(mode=0o711)
    model = ScriptedModel(ANSWER)
    async with serving(model) as url:
        order = ["run", ONE_FILE, "--run", "dry", "--model", url, "--groups", "50", "--group-size", "2"]
        variables = {
            "CLOTHO_SANDBOX__ROOT": str(own / "sandboxes"),
            "TMPDIR": str(own),
            "PYTHONPATH": str(Path.cwd()),
        }
        done = await clotho(*order, "--dry-run", "--store", own / "store", folder=own, environment=variables)
    assert "run dry: 50 items × 2 = 100 rollouts, 100 of which are left to do" in done.output, done
    assert "3 rollouts of its first items, made now and not kept" in done.output
    assert "its cost isn't estimated" in done.output
    assert figures(done, "turns") == [1, 1, 1, 100]
    least, mean, most, whole = figures(done, "sampled tokens")
    assert 0 < least <= mean <= most
    assert whole == pytest.approx(100 * mean, rel=0.1)
    assert sum(model.calls.requests.values()) == 3
    assert not (own / "store").exists()
    assert list((own / "sandboxes").glob("*")) == []


@pytest.mark.slow
async def test_a_run_that_has_rollouts_is_estimated_from_them(
    cluster: Cluster, rolled_out: ScriptedModel
) -> None:
    async with serving(rolled_out) as url:
        order = ["run", ONE_FILE, "--run", "dry-scored", "--model", url, "--group-size", "2"]
        order += ["--model-name", "scripted", "--store", cluster.store_location, "--dry-run"]
        prices = '{"scripted": {"prompt": 0, "sampled": 1000000}}'
        done = await clotho(*order, "--groups", "10", "--prices", prices)
        refused = await clotho(*order, "--temperature", "0.5")
    assert "10 items × 2 = 20 rollouts, 16 of which are left to do" in done.output, done
    assert "4 rollouts that the run has" in done.output
    assert figures(done, "turns") == [1, 1, 1, 16]
    dollars = figures(done, "US dollars, without a cache")
    assert dollars == pytest.approx(figures(done, "sampled tokens"), rel=0.05)
    assert rolled_out.calls.requests == {}
    assert "exists with other settings (sampling.temperature" in refused.complaint
