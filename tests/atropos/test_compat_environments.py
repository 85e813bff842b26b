"""Whole environments of the in-memory design: their rewards, evaluations and distillation."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clotho.errors import ModelRejected
from clotho.plugins.atropos.compat.environment import CompatEnv
from clotho.testing.script import Script, terminal_turns
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.atropos.compat.answers import answer
from tests.atropos.compat.boxed_tasks import BoxedTasks
from tests.atropos.compat.checked_code import CheckedCode
from tests.atropos.compat.hindsight import Hindsight
from tests.atropos.compat.home_files import HomeFiles
from tests.atropos.compat.research import Research
from tests.atropos.compat.scripted_tokens import LOGPROB, ScriptedTokens
from tests.atropos.inside import opened_inside
from tests.cluster import Cluster

TOKENS = {"inference": "vllm-completions", "accept_chat_data": False}


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[str]:
    async with serving(ScriptedModel(Script(conversations=(terminal_turns(1),)), policy=answer)) as url:
        yield url


async def scores_of(env: CompatEnv, groups: int) -> list[list[float]]:
    env.process_mode = True
    found = []
    for _ in range(groups):
        group, _ = await env.collect_trajectories(await env.get_next_item())
        assert isinstance(group, dict)
        found.append(group["scores"])
    return found


async def evaluated(env: CompatEnv, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What its evaluation logs."""
    logged: dict[str, float] = {}

    async def log(metrics: dict[str, float], **_: Any) -> None:
        logged.update(metrics)

    monkeypatch.setattr(env, "evaluate_log", log)
    await env.evaluate()
    return logged


async def test_rewards_look_into_the_agents_home(
    cluster: Cluster, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_inside(cluster, HomeFiles, model, monkeypatch) as env:
        assert await scores_of(env, 2) == [[1.0, 1.0, 0.5]] * 2
        assert sorted(env.rewards) == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]
        assert await evaluated(env, monkeypatch) == {"eval/answers": 0}, "answers were calls of tools"


async def test_rewards_run_tests_in_the_workspace(
    cluster: Cluster, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_inside(cluster, CheckedCode, model, monkeypatch) as env:
        assert await scores_of(env, 2) == [[1.0, 1.0], [0.1, 0.1]]


async def test_rewards_and_evaluations_ask_the_served_model_to_judge(
    cluster: Cluster, model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the web here: rollouts do without its tools, and the log says so."""
    async with opened_inside(cluster, Research, model, monkeypatch) as env:
        assert "Research asks for the tool web_search, which isn't offered" in caplog.text
        assert await scores_of(env, 1) == [[0.7, 0.7]]
        assert await evaluated(env, monkeypatch) == {"eval/mean_reward": 0.7, "eval/correct": 0.5}


@pytest.mark.parametrize("inference", ["chat", "vllm-completions"])
@pytest.mark.slow
async def test_an_evaluation_of_boxed_tasks(
    cluster: Cluster, model: str, monkeypatch: pytest.MonkeyPatch, inference: str
) -> None:
    """In both modes: the loop is given the server, or a managed one. A task that takes too long has failed."""
    settings = {"inference": inference, "run": f"boxed-{inference}", "max_token_length": 300}
    async with serving(ScriptedTokens(answer)) as tokens:
        url = model if inference == "chat" else tokens
        async with opened_inside(cluster, BoxedTasks, url, monkeypatch, **settings) as env:
            results = await evaluated(env, monkeypatch)
    assert results == {"eval/plain": 1.0, "eval/wrong": 0.0, "eval/endless": 0.0}


async def test_a_distillation_is_fed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = ScriptedTokens(answer)
    async with (
        serving(teacher) as url,
        opened_inside(cluster, Hindsight, url, monkeypatch, **TOKENS) as env,
    ):
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert group["scores"] == [1.0, 0.1]
    assert len(teacher.scored) == 2
    said = env.tokenizer("Writing the answer and its test.", add_special_tokens=False)["input_ids"]
    for tokens, ids, logprobs in zip(
        group["tokens"], group["distill_token_ids"], group["distill_logprobs"], strict=True
    ):
        assert len(ids) == len(tokens)
        scored = [at for at, row in enumerate(ids) if any(row)]
        assert [tokens[at] for at in scored] == said
        assert [ids[at][0] for at in scored] == said, "the first candidate is what was said"
        assert {logprobs[at][0] for at in scored} == {LOGPROB}


async def test_a_distillation_that_no_server_feeds_ends_the_adapter(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the environment would catch the error, and go on without."""
    async with serving(ScriptedTokens(answer, scores=False)) as url:
        with pytest.raises(ModelRejected, match=r"scores no tokens: .*prompt_logprobs are disabled"):
            async with opened_inside(
                cluster, Hindsight, url, monkeypatch, run="hindsight-unfed", **TOKENS
            ) as env:
                await env.collect_trajectories(await env.get_next_item())
                raise AssertionError("a group went on without its scores")


async def test_where_turns_are_chat_a_distillation_is_told_that_there_are_no_tokens(
    cluster: Cluster, model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_inside(cluster, Hindsight, model, monkeypatch, run="hindsight-chat") as env:
        [[first, second]] = await scores_of(env, 1)
    assert (first, second) == (1.0, 0.1)
    assert caplog.text.count("Hindsight asks for tokens, and --env.inference chat has none") == 1


async def test_a_hook_is_called_for_each_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    from clotho.plugins.atropos.compat.hooks import branch_groups_through, this_branch_group

    calls = 0

    async def collect() -> Any:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return [{"wave": 0}, {"wave": 1}], ["further"]

    async def hook(item: str) -> Any:
        group, further = await this_branch_group(collect)
        assert isinstance(group, dict) and item == "item"
        return {**group, "seen": True}, further

    expected = [{"wave": 0, "seen": True}, {"wave": 1, "seen": True}]
    assert await branch_groups_through(hook, "item") == (expected, ["further"])
    assert calls == 1
