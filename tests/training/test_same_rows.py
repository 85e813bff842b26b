"""The same finished rollouts by every way out: equal tokens, masks, logprobs and rewards."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyarrow import parquet

from clotho.atropos.scored import MASKED, branch_groups_of
from clotho.embedded.model import EmbeddedModelServer
from clotho.orders.client import RolloutClient
from clotho.orders.messages import GroupOrder
from clotho.runs.groups import scored_groups
from clotho.testing.script import Script
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.training.siblings import read_siblings
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.orders.service import file_item, file_tasks, serving_rollouts
from tests.support import start
from tests.workflows.scripts import scoring

RUN, GROUPS, SIZE = "every-way-out", 4, 3

Rows = dict[tuple[str, int], tuple[list[int], list[bool], list[float], float]]
"""Rollout and number of the branch -> tokens, mask, logprobs and reward."""


@pytest.fixture(scope="module")
async def fetched(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> AsyncIterator[list[dict[str, Any]]]:
    """The rows of groups that were ordered and fetched over HTTP, as JSON."""
    names = [f"item-{number}" for number in range(GROUPS)]
    async with serving_rollouts(cluster) as service:
        client = RolloutClient(service.url)
        await asyncio.to_thread(client.open_run, RUN, file_tasks(embedded_model, group_size=SIZE))
        for number, name in enumerate(names):
            await asyncio.to_thread(client.order, RUN, name, GroupOrder(item=file_item(number)))
        for name in names:
            await asyncio.to_thread(client.wait, RUN, name)
        async with httpx.AsyncClient(base_url=service.url, timeout=120) as http:
            answers = [await http.get(f"/runs/{RUN}/groups/{name}") for name in names]
    yield [row for answer in answers for row in answer.json()["rows"]]


@pytest.fixture(scope="module")
async def finished(cluster: Cluster, fetched: list[dict[str, Any]]) -> Rows:
    """The same as Atropos gets them."""
    journal, rows = cluster.open_journal(), {}
    for group, entry in await scored_groups(journal, RUN):
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
    assert len({rollout for rollout, _ in rows}) == GROUPS * SIZE
    return rows


def rows_of(exported: Iterable[dict[str, Any]]) -> Rows:
    return {
        (row["rollout"], row["branch"]): (row["ids"], row["mask"], row["logprobs"], row["reward"])
        for row in exported
    }


async def test_fetched_rows_are_those_of_atropos(finished: Rows, fetched: list[dict[str, Any]]) -> None:
    assert rows_of(fetched) == finished


async def test_exported_rows_are_those_of_atropos(
    cluster: Cluster, finished: Rows, fetched: list[dict[str, Any]], tmp_path: Path
) -> None:
    order = ("export", RUN, "--store", cluster.store, "--format", "tokens")
    printed = await clotho(*order)
    assert (printed.status, printed.error) == (0, "")
    lines = [json.loads(line) for line in printed.output.splitlines()]
    assert rows_of(lines) == finished
    assert lines == sorted(fetched, key=lambda row: (row["rollout"], row["branch"]))
    written = await clotho(*order, "--output", tmp_path / "rows.parquet")
    assert (written.status, written.output) == (0, "")
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == lines
    for row in lines:
        assert row["group"] == row["rollout"].rpartition("/")[0]
        assert (row["temperature"], row["logprobs_mode"], row["excluded"]) == (1.0, "raw", False)


async def test_groups_without_tokens_are_left_out(cluster: Cluster) -> None:
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        await (await start(cluster, "chat-only", url, groups=2)).result()
    exported = await clotho("export", "chat-only", "--store", cluster.store, "--format", "tokens")
    assert (exported.status, exported.output) == (0, "")
    assert exported.error == "groups left out, which can't be trained on: 2 chat_mode\n"
