"""The same finished rollouts by every way out: equal tokens, masks, logprobs and rewards."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from clotho_client.orders import GroupAnswer, RunOrder
from pyarrow import parquet

from clotho.listeners.tokens import TokenAuth
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.plugins.atropos.scored import MASKED, branch_groups_of
from clotho.plugins.trainers.slime import samples_of
from clotho.plugins.trainers.trl import group_names, rollout_func
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Item
from clotho.runs.groups import scored_groups
from clotho.testing.script import Script
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.training.siblings import read_siblings
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.orders.service import serving_rollouts
from tests.support import ONE_FILE, start
from tests.token_scripts import FORGETFUL, TokenScript, calling, thinking
from tests.trainers.samples import Sample
from tests.unit.rendering.families import make_model
from tests.workflows.scripts import scoring

RUN, GROUPS, PAD = "every-way-out", 13, 0
SAID = (
    (thinking("small", calling("echo -n 0.5 > /work/score")), "Done, and it took me longer than I thought."),
    (calling("echo -n 1 > /work/score"), "Done."),
    ("I'd rather not.",),
    (thinking("quite a while", calling("true")), "Done."),
)
"""By each sibling. A thought that is forgotten begins another branch."""
SIZE, BRANCHES = len(SAID), 6

Rows = dict[tuple[str, int], tuple[list[int], list[bool], list[float], float]]
"""Rollout and number of the branch -> tokens, mask, logprobs and reward."""


@dataclass(frozen=True)
class Finished:
    """One run, as TRL and a client of the rollout API were given it, and its groups in the store."""

    trl: dict[str, list[Any]]
    answers: list[GroupAnswer]
    """In the order in which TRL asked for the groups."""
    groups: list[tuple[str, GroupEntry]]

    @property
    def fetched(self) -> list[dict[str, Any]]:
        """The rows as JSON."""
        return [row.model_dump(mode="json") for answer in self.answers for row in answer.rows or ()]


@pytest.fixture(scope="module")
async def finished(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Finished]:
    """Groups that TRL's function ordered."""
    model = make_model(tmp_path_factory.mktemp("model") / "forgetful", FORGETFUL)
    async with serving(TokenScript(model, SAID)) as url, serving_rollouts(cluster) as service:
        order = RunOrder(
            environment=ONE_FILE,
            environment_config={"enabled_toolsets": ["terminal"]},
            model="forgetful",
            endpoint=Endpoint(base_url=url, inference=Inference.TOKENS),
            rendering=Rendering(tokenizer=str(model), tool_call_parser="hermes"),
            group_size=SIZE,
        )
        items: list[Item] = [{"number": number} for number in range(GROUPS)]
        prompts = [json.dumps(item) for item in items for _ in range(SIZE)]
        trained = await asyncio.to_thread(rollout_func(service.url, RUN, order), prompts, trl_trainer())
        groups = await scored_groups(cluster.open_journal(), RUN)
        async with httpx.AsyncClient(base_url=service.url, timeout=120, auth=TokenAuth()) as http:
            asked = [await http.get(f"/runs/{RUN}/groups/{name}") for name in group_names(0, 0, 0, items)]
    answers = [GroupAnswer.model_validate_json(each.content) for each in asked]
    yield Finished(trained, answers, groups)


def trl_trainer() -> Any:
    """The parts of a GRPOTrainer that a rollout_func uses."""
    return SimpleNamespace(
        model=SimpleNamespace(training=True),
        state=SimpleNamespace(global_step=0),
        args=SimpleNamespace(temperature=1.0),
        accelerator=SimpleNamespace(process_index=0),
        processing_class=SimpleNamespace(pad_token_id=PAD),
        num_generations=SIZE,
        num_generations_eval=SIZE,
    )


@pytest.fixture(scope="module")
async def rows(cluster: Cluster, finished: Finished) -> Rows:
    """The same as Atropos gets them."""
    journal, rows = cluster.open_journal(), {}
    for group, entry in finished.groups:
        siblings = await read_siblings(journal, entry)
        for branch, made in enumerate(branch_groups_of(group, siblings, SIZE)):
            wire = made.wire()
            for number, rollout in enumerate(wire["generation_params"]["rollouts"]):
                tokens, masks = wire["tokens"][number], wire["masks"][number]
                if set(masks) == {MASKED}:
                    continue
                mask = [each != MASKED for each in masks]
                logprobs = wire["inference_logprobs"][number]
                assert [token for token in masks if token != MASKED] == [
                    token for token, sampled in zip(tokens, mask, strict=True) if sampled
                ]
                sampled = [logprob if each else 0.0 for logprob, each in zip(logprobs, mask, strict=True)]
                rows[rollout, branch] = (tokens, mask, sampled, wire["scores"][number])
    assert len({rollout for rollout, _ in rows}) == GROUPS * SIZE >= 50
    assert len(rows) == GROUPS * BRANCHES
    assert {row[3] for row in rows.values()} == {0.0, 0.5, 1.0}
    return rows


def rows_of(exported: Iterable[dict[str, Any]]) -> Rows:
    return {
        (row["rollout"], row["branch"]): (row["ids"], row["mask"], row["logprobs"], row["reward"])
        for row in exported
    }


async def test_fetched_rows_are_those_of_atropos(rows: Rows, finished: Finished) -> None:
    assert rows_of(finished.fetched) == rows


async def test_rows_of_trl_are_those_of_atropos(rows: Rows, finished: Finished) -> None:
    """A row for each prompt, in the prompts' order: the branch with the most sampled tokens."""
    fields = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward")
    trained = list(zip(*(finished.trl[field] for field in fields), strict=True))
    rollouts = [rollout for rollout, _ in groupby(finished.fetched, lambda row: row["rollout"])]
    assert len(trained) == len(rollouts) == GROUPS * SIZE
    for rollout, (prompt, completion, logprobs, mask, reward) in zip(rollouts, trained, strict=True):
        before = len(prompt)
        whole = (
            [*prompt, *completion],
            [False] * before + [bool(sampled) for sampled in mask],
            [0.0] * before + logprobs,
            reward,
        )
        branches = [row for (one, _), row in rows.items() if one == rollout]
        assert whole == max(reversed(branches), key=lambda row: sum(row[1]))


async def test_samples_of_slime_are_those_rows(rows: Rows, finished: Finished) -> None:
    found: Rows = {}
    for index in range(GROUPS * SIZE):
        sample = Sample(group_index=index // SIZE, index=index)
        for branch, made in enumerate(samples_of(finished.answers[index // SIZE], sample, SIZE, 1.0)):
            before = len(made.tokens) - made.response_length
            mask = [False] * before + [bool(sampled) for sampled in made.loss_mask or ()]
            logprobs = [0.0] * before + (made.rollout_log_probs or [])
            found[made.metadata["clotho_rollout"], branch] = (made.tokens, mask, logprobs, made.reward or 0.0)
    assert found == rows


async def test_datums_of_tinker_are_those_rows(rows: Rows, finished: Finished) -> None:
    """Its numbers have 32 bits."""
    pytest.importorskip("tinker")
    from clotho.plugins.trainers.tinker import datums

    made = [each for answer in finished.answers for each in datums(answer)]
    fetched = finished.fetched
    assert len(made) == len(fetched) == len(rows)
    score = mean((0.5, 1.0, 0.0, 0.0))
    for each, row in zip(made, fetched, strict=True):
        ids, mask, logprobs, reward = rows[row["rollout"], row["branch"]]
        inputs = {name: value.tolist() for name, value in each.loss_fn_inputs.items()}
        assert [*each.model_input.to_ints(), inputs["target_tokens"][-1]] == ids
        assert inputs["target_tokens"] == ids[1:]
        assert inputs["logprobs"] == np.asarray(logprobs[1:], np.float32).tolist()
        assert inputs["advantages"] == [reward - score if sampled else 0.0 for sampled in mask[1:]]


async def test_exported_rows_are_those_of_atropos(
    cluster: Cluster, rows: Rows, finished: Finished, tmp_path: Path
) -> None:
    order = ("export", RUN, "--store", cluster.store, "--format", "tokens")
    printed = await clotho(*order)
    assert (printed.status, printed.error) == (0, "")
    lines = [json.loads(line) for line in printed.output.splitlines()]
    assert rows_of(lines) == rows
    assert lines == sorted(finished.fetched, key=lambda row: (row["rollout"], row["branch"]))
    written = await clotho(*order, "--output", tmp_path / "rows.parquet")
    assert (written.status, written.output) == (0, "")
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == lines
    for row in lines:
        assert row["group"] == row["rollout"].rpartition("/")[0]
        assert (row["temperature"], row["logprobs_mode"], row["excluded"]) == (1.0, "raw", False)


async def test_a_run_without_tokens_is_refused(cluster: Cluster) -> None:
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        await (await start(cluster, "chat-only", url, groups=2)).result()
    exported = await clotho("export", "chat-only", "--store", cluster.store, "--format", "tokens")
    assert "start runs with `--inference tokens`" in exported.complaint
