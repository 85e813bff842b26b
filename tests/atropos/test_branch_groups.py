"""Rollouts whose history was rewritten, from their turns to a trainer's batch."""

from pathlib import Path
from typing import Any

from clotho.journal import Journal
from clotho.models.backend import SampledTokens
from clotho.rollouts.outcome import Outcome
from clotho.rollouts.transcript import read_transcript
from clotho.runs.rollouts import read_end
from clotho.testing.scripted_model import serving
from tests.atropos.adapter import register_trainer
from tests.atropos.inside import serving_inside
from tests.atropos_api.service import Api
from tests.cluster import Cluster
from tests.token_scripts import CONTEXT, FORGETFUL, TokenScript, calling, thinking
from tests.unit.rendering.families import make_model

SAID = (
    (thinking("small", calling("echo -n 0.5 > /work/score")), calling("true"), "Done."),
    (calling("echo -n 1 > /work/score; seq 9000"),),
)
"""By each sibling. The first thinks once; the second is told more than fits."""


async def sampled(journal: Journal, rollout: str) -> list[SampledTokens]:
    end = await read_end(journal, rollout)
    assert end is not None
    transcript = await read_transcript(journal, rollout, end.summary.turns)
    turns = [step.turn.sampled for step in transcript.steps]
    return [turn.tokens for turn in turns if turn is not None and turn.tokens is not None]


def whole(turn: SampledTokens) -> list[int]:
    return [*turn.prompt_ids, *turn.ids]


def sampled_pairs(*turns: SampledTokens) -> list[tuple[int, float]]:
    return [pair for turn in turns for pair in zip(turn.ids, turn.logprobs, strict=True)]


def trained_pairs(group: dict[str, Any], row: int) -> list[tuple[int, float]]:
    masks, logprobs = group["masks"][row], group["inference_logprobs"][row]
    assert len(masks) == len(logprobs) == len(group["tokens"][row])
    assert all(logprob == 1.0 for mask, logprob in zip(masks, logprobs, strict=True) if mask == -100)
    return [pair for pair in zip(masks, logprobs, strict=True) if pair[0] != -100]


async def test_a_history_that_is_rewritten_makes_another_wave(
    cluster: Cluster, stock: Api, tmp_path: Path
) -> None:
    """The trainer gets both as whole groups: each sampled token once, and every rollout's score in each."""
    model = make_model(tmp_path / "forgetful", FORGETFUL)
    await stock.http.get("/reset_data")
    await register_trainer(stock, batch_size=4, max_token_len=2 * CONTEXT)
    fields = {
        "model": "forgetful",
        "inference": "tokens",
        "tokenizer_name": str(model),
        "tool_call_parser": "hermes",
        "environment_config": {"enabled_toolsets": ["terminal"]},
        "group_size": 2,
    }
    async with (
        serving(TokenScript(model, SAID)) as url,
        serving_inside(cluster, "waves", url, stock, **fields) as env,
    ):
        item = await env.get_next_item()
        branch_groups, _ = await env.collect_trajectories(item)
        await env.handle_send_to_api(branch_groups, item)
        batch = (await stock.http.get("/batch")).json()["batch"]
    journal, group = cluster.open_journal(), item.claim.group
    first, second, third = await sampled(journal, f"{group}/r0")
    (only,) = await sampled(journal, f"{group}/r1")
    end = await read_end(journal, f"{group}/r1")
    assert end is not None
    assert end.summary.ending.outcome is Outcome.CONTEXT_OVERFLOW, "an outcome, and scored"

    assert len(batch) == 2
    begun, rewritten = sorted(batch, key=lambda group: len(trained_pairs(group, 1)), reverse=True)
    assert begun["scores"] == rewritten["scores"] == [0.5, 1.0]
    assert begun["tokens"] == [whole(first), whole(only)]
    assert trained_pairs(begun, 0) == sampled_pairs(first)
    assert trained_pairs(begun, 1) == sampled_pairs(only)
    assert rewritten["tokens"][0] == whole(third)
    assert trained_pairs(rewritten, 0) == sampled_pairs(second, third)
    assert trained_pairs(rewritten, 1) == [], "the sibling without a second sequence fills its row"
    assert len(rewritten["tokens"][1]) >= 2
    assert rewritten["generation_params"]["weight_versions"] == [["7"], []]
