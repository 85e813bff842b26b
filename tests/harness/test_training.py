"""Rollouts of programs with a loop of their own as training data: by Atropos and by TRL."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from clotho_client.orders import RunOrder

from clotho.identifiers.keys import scored_key
from clotho.journal import Journal
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.plugins.trainers.trl import rollout_func
from clotho.rollouts.group import GroupEntry
from clotho.runs.groups import scored_groups
from clotho.testing.scripted_model import serving
from tests.atropos.adapter import register_trainer
from tests.atropos.inside import serving_inside
from tests.atropos.test_branch_groups import sampled, sampled_pairs, trained_pairs, whole
from tests.atropos_api.service import Api, running
from tests.cluster import Cluster
from tests.harness.test_harness import COMMAND, ENVIRONMENT
from tests.orders.service import serving_rollouts
from tests.token_scripts import CONTEXT, FORGETFUL, TokenScript, calling
from tests.training.test_same_rows import trl_trainer
from tests.unit.rendering.families import make_model

pytestmark = pytest.mark.slow

SAID = tuple(
    (calling("echo a >> /work/log"), calling(f"echo -n {score} > /work/score"), "Done.")
    for score in (0.25, 0.5, 0.75, 1)
)
HARNESS = {"harness": {"command": COMMAND}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "forgetful", FORGETFUL)


async def siblings_of(journal: Journal, group: str) -> list[str]:
    entry = await journal.read_required(scored_key(group), GroupEntry)
    return [sibling.rollout for sibling in entry.siblings]


@pytest.fixture
async def stock(tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path / "api", stock=True) as api:
        yield api


async def test_atropos_gets_the_tokens_that_were_sampled(cluster: Cluster, stock: Api, model: Path) -> None:
    await register_trainer(stock, batch_size=4, max_token_len=2 * CONTEXT)
    fields: dict[str, Any] = {
        "tokenizer_name": str(model),
        "tool_call_parser": "hermes",
        "environment": ENVIRONMENT,
        "agent": "command",
        "model": "forgetful",
        "inference": "tokens",
        "plugins": HARNESS,
        "group_size": len(SAID),
    }
    async with (
        serving(TokenScript(model, SAID)) as url,
        serving_inside(cluster, "harness-atropos", url, stock, **fields) as env,
    ):
        item = await env.get_next_item()
        groups, _ = await env.collect_trajectories(item)
        await env.handle_send_to_api(groups, item)
        (group,) = (await stock.http.get("/batch")).json()["batch"]
    journal = cluster.open_journal()
    assert group["scores"] == [0.25, 0.5, 0.75, 1.0]
    for row, rollout in enumerate(await siblings_of(journal, item.claim.group)):
        turns = await sampled(journal, rollout)
        assert group["tokens"][row] == whole(turns[-1])
        assert trained_pairs(group, row) == sampled_pairs(*turns)


async def test_trl_gets_the_tokens_that_were_sampled(cluster: Cluster, model: Path) -> None:
    async with serving(TokenScript(model, SAID)) as url, serving_rollouts(cluster) as service:
        order = RunOrder(
            environment=ENVIRONMENT,
            agent="command",
            model="forgetful",
            endpoint=Endpoint(base_url=url, inference=Inference.TOKENS),
            rendering=Rendering(tokenizer=str(model), tool_call_parser="hermes"),
            group_size=len(SAID),
            settings={"plugins": HARNESS},
        )
        prompts = [json.dumps({"number": 0})] * len(SAID)
        given = await asyncio.to_thread(
            rollout_func(service.url, "harness-trl", order), prompts, trl_trainer()
        )
    journal = cluster.open_journal()
    [(_, entry)] = await scored_groups(journal, "harness-trl")
    for row, sibling in enumerate(entry.siblings):
        turns = await sampled(journal, sibling.rollout)
        assert [*given["prompt_ids"][row], *given["completion_ids"][row]] == whole(turns[-1])
        trained = [
            (token, logprob)
            for token, logprob, mask in zip(
                given["completion_ids"][row], given["logprobs"][row], given["env_mask"][row], strict=True
            )
            if mask
        ]
        assert trained == sampled_pairs(*turns)
