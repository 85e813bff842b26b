"""Runs from Python, on real workers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clotho
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import ONE_FILE


def scoring(*scores: float) -> Script:
    def turns(score: float) -> tuple[ScriptedTurn, ...]:
        call = ScriptedCall(name="terminal", arguments={"command": f"echo -n {score} > /work/score"})
        return ScriptedTurn(calls=(call,)), ScriptedTurn(content="Done.")

    return Script(conversations=(Conversation(variants=tuple(turns(score) for score in scores)),))


@pytest.fixture(scope="module")
async def run(cluster: Cluster) -> AsyncIterator[clotho.Run]:
    async with serving(ScriptedModel(scoring(1.0, 0.5))) as url:
        yield await asyncio.to_thread(
            clotho.run,
            ONE_FILE,
            name="from-python",
            model=url,
            groups=2,
            group_size=2,
            progress=False,
            store=str(cluster.store),
            temporal=cluster.address,
            model_name="scripted",
            prices={"scripted": {"prompt": 1, "sampled": 2}},
        )


async def test_its_figures_are_read(run: clotho.Run) -> None:
    def look() -> None:
        assert run.state == "scored"
        assert run.mean_reward == 0.75
        assert run.pass_at(1) == 0.5
        assert run.pass_at(2) == 1.0
        assert run.cost is not None and run.cost > 0
        with pytest.raises(clotho.ClothoError, match="2 scored rollouts of each item"):
            run.pass_at(3)
        summary = run.summary()
        assert (summary.scored, summary.groups, summary.rollouts, summary.turns) == (2, 2, 4, 8)
        assert summary.started is not None and summary.seconds is not None and summary.seconds > 0
        assert summary.without_signal == 0

    await asyncio.to_thread(look)


async def test_its_rollouts_are_read(run: clotho.Run) -> None:
    def look() -> None:
        rollouts = list(run.rollouts())
        assert [rollout.reward for rollout in rollouts] == [1.0, 0.5, 1.0, 0.5]
        assert [group.rewards for group in run.groups()] == [(1.0, 0.5), (1.0, 0.5)]
        first = rollouts[0]
        assert (first.id, first.outcome, first.disturbances) == ("from-python/g000000/r0", "completed", ())
        assert [message["role"] for message in first.messages][-3:] == ["assistant", "tool", "assistant"]
        assert first.text == "Done."

    await asyncio.to_thread(look)


async def test_it_becomes_tables(run: clotho.Run) -> None:
    def look() -> None:
        frame = run.to_pandas()
        assert list(frame["reward"]) == [1.0, 0.5, 1.0, 0.5]
        assert list(run.to_polars()["rollout"]) == list(frame["rollout"])
        turns = run.turns()
        assert len(turns) == 8
        assert next(iter(turns["tools"])) == ["terminal"]

    await asyncio.to_thread(look)


async def test_a_notebook_shows_it(run: clotho.Run) -> None:
    html = await asyncio.to_thread(run._repr_html_)
    assert "2/2 groups scored" in html
    assert "mean 0.750" in html
    assert "rewards of 4 rollouts" in html


async def test_it_is_exported_and_compared(run: clotho.Run, tmp_path: Path) -> None:
    def work() -> None:
        output = run.export(tmp_path / "out.jsonl", format="groups")
        assert len(output.read_text().splitlines()) == 2
        with pytest.raises(clotho.ClothoError, match="--inference tokens"):
            run.export(tmp_path / "tokens.jsonl", format="tokens")
        assert run.compare(run).reward.better == 0
        with pytest.raises(clotho.ClothoError, match="nothing to retry"):
            run.retry()

    await asyncio.to_thread(work)


async def test_a_run_of_the_store_is_opened(run: clotho.Run, cluster: Cluster) -> None:
    place = {"store": str(cluster.store), "temporal": cluster.address}
    opened = await asyncio.to_thread(clotho.open, "from-python", **place)
    assert await asyncio.to_thread(lambda: opened.mean_reward) == 0.75
    names = [each.name for each in await asyncio.to_thread(clotho.list_runs, **place)]
    assert "from-python" in names
    with pytest.raises(clotho.ClothoError, match="there is no run 'no-such'"):
        await asyncio.to_thread(clotho.open, "no-such", **place)


async def test_groups_come_as_they_are_scored(cluster: Cluster) -> None:
    async with serving(ScriptedModel(scoring(1.0, 0.5))) as url:
        running = clotho.arun(
            ONE_FILE,
            model=url,
            groups=3,
            group_size=2,
            store=str(cluster.store),
            temporal=cluster.address,
        )
        found = [group.id async for group in running]
        run = await running
    assert run.name == "one-file-1"
    assert sorted(found) == [f"one-file-1/g00000{number}" for number in range(3)]


async def test_an_option_that_is_none_is_named(cluster: Cluster) -> None:
    place: dict[str, Any] = {"store": str(cluster.store), "temporal": cluster.address}
    with pytest.raises(clotho.ClothoError, match=r"no option 'temprature': do you mean temperature\?"):
        await asyncio.to_thread(clotho.run, ONE_FILE, model="http://127.0.0.1:1", temprature=1, **place)
    with pytest.raises(clotho.ClothoError, match="temperature: "):
        await asyncio.to_thread(clotho.run, ONE_FILE, model="http://127.0.0.1:1", temperature="hot", **place)


async def test_a_run_gets_another_budget_and_is_deleted(cluster: Cluster) -> None:
    place: dict[str, Any] = {"store": str(cluster.store), "temporal": cluster.address}

    def work(url: str) -> None:
        run = clotho.run(
            ONE_FILE, name="short-lived", model=url, groups=1, group_size=1, progress=False, **place
        )
        with pytest.raises(clotho.ClothoError, match="budget"):
            run.resume(budget={"no_such_bound": 1})
        run.resume(budget={"sampled_tokens": 70_000})
        run.wait(progress=False)
        assert "short-lived" in [each.name for each in clotho.list_runs(**place)]
        run.delete()
        assert "short-lived" not in [each.name for each in clotho.list_runs(**place)]
        with pytest.raises(clotho.ClothoError, match="there is no run 'short-lived'"):
            run.delete()

    async with serving(ScriptedModel(scoring(1.0))) as url:
        await asyncio.to_thread(work, url)
