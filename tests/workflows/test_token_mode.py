"""Runs whose tokens are known: as the server sampled them, whatever dies on the way."""

import httpx
import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.identifiers.keys import stream_prefix, turn_key
from clotho.journal import Journal
from clotho.models.backend import Inference, SampledTurn
from clotho.models.rendering.rendering import Rendering
from clotho.rollouts.branches import branches_of
from clotho.rollouts.transcript import read_transcript
from clotho.rollouts.turn import TurnEntry
from clotho.runs.groups import scored_groups
from clotho.runs.manifest import read_capabilities
from clotho.runs.rollouts import read_end
from clotho.runs.trainer_steps import note_step
from clotho.testing.scripted_model import serving
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually
from tests.token_servers import Relay, SequenceSampler

RENDERING = Rendering(tool_call_parser="hermes")


async def turns_of(journal: Journal, rollout: str) -> list[SampledTurn]:
    end = await read_end(journal, rollout)
    assert end is not None
    keys = [turn_key(rollout, number) for number in range(end.summary.turns)]
    return [entry.sampled for entry in await journal.read_many(keys, TurnEntry) if entry and entry.sampled]


async def assert_as_sampled(url: str, turn: SampledTurn) -> None:
    """The same request in one piece comes to the same ids, and logprobs to the last bit."""
    assert turn.tokens is not None
    sampling = turn.sampling.model_dump(mode="json", exclude={"extra_body"}) | {"logprobs": 0}
    body = {"token_ids": turn.tokens.prompt_ids, "sampling_params": sampling}
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        choice = (await client.post("/inference/v1/generate", json=body)).json()["choices"][0]
    assert tuple(choice["token_ids"]) == turn.tokens.ids
    assert tuple(each["logprob"] for each in choice["logprobs"]["content"]) == turn.tokens.logprobs


async def test_every_sampled_token_of_a_run_is_in_one_branch(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    handle = await cluster.start(
        "exact",
        f"{embedded_model.url}/v1",
        environment="file_tasks",
        model=embedded_model.model,
        groups=2,
        group_size=2,
        inference=Inference.TOKENS,
        rendering=RENDERING,
    )
    await handle.result()
    journal = cluster.open_journal()
    served = await read_capabilities(journal, "exact")
    assert served is not None
    assert (served.backend, served.logprobs_mode) == (Inference.VLLM_GENERATE, "raw")
    for _, group in await scored_groups(journal, "exact"):
        for sibling in group.siblings:
            turns = await turns_of(journal, sibling.rollout)
            for turn in turns:
                await assert_as_sampled(embedded_model.url, turn)
            branches = branches_of(
                sibling.rollout, await read_transcript(journal, sibling.rollout, len(turns))
            )
            trained = [
                (token, logprob)
                for branch in branches
                for token, logprob, mask in zip(branch.ids, branch.logprobs, branch.mask, strict=True)
                if mask
            ]
            sampled = [
                pair for t in turns if t.tokens for pair in zip(t.tokens.ids, t.tokens.logprobs, strict=True)
            ]
            assert trained == sampled and sampled


async def test_turns_name_the_trainers_step_where_the_server_has_no_versions(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    journal, name = cluster.open_journal(), "stepped"
    await note_step(journal, name, 12)
    async with serving(SequenceSampler()) as url:
        handle = await cluster.start(
            name,
            url,
            environment="file_tasks",
            model=embedded_model.model,
            inference=Inference.TOKENS,
            rendering=RENDERING,
        )
        await handle.result()
    (branch,) = branches_of(f"{name}/g000000/r0", await read_transcript(journal, f"{name}/g000000/r0", 1))
    assert {span.version for span in branch.versions} == {"step:12"}
    assert sum(span.end - span.start for span in branch.versions) == sum(branch.mask) > 0
    served = await read_capabilities(journal, name)
    assert served is not None and served.weight_version is None


@pytest.mark.slow
async def test_a_turn_whose_worker_is_killed_goes_on_from_its_tokens(
    private_cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    cluster, rollout = private_cluster, "killed/g000000/r0"
    ahead = cluster.store / stream_prefix(turn_key(rollout, 0))
    settings = {"CLOTHO_WORKER__WRITE_AHEAD_SECONDS": "0.2"}
    relay = Relay(embedded_model.url, seconds=0.1, most=8)
    async with serving(relay) as url:
        worker = await cluster.start_worker(**settings)
        handle = await cluster.start(
            "killed",
            url,
            environment="file_tasks",
            model=embedded_model.model,
            inference=Inference.TOKENS,
            rendering=RENDERING,
        )

        async def written_ahead() -> bool:
            return ahead.exists() and len(list(ahead.iterdir())) >= 2

        await eventually(written_ahead, "a write-ahead of the first turn")
        await worker.kill()
        relay.seconds, relay.most = 0.0, None
        await cluster.start_worker(**settings)
        await handle.result()
    journal = cluster.open_journal()
    first, *_ = turns = await turns_of(journal, rollout)
    assert first.tokens is not None and first.tokens.resumed_at
    (span,) = first.tokens.versions
    assert (span.start, span.end) == (0, len(first.tokens.ids))
    assert not ahead.exists() or not list(ahead.iterdir()), "the write-ahead goes when the rollout is sealed"
    for turn in turns:
        await assert_as_sampled(embedded_model.url, turn)
    asked = [len(body["token_ids"]) for key, body in relay.asked if key.startswith(turn_key(rollout, 0))]
    assert asked == [len(first.tokens.prompt_ids), len(first.tokens.prompt_ids) + first.tokens.resumed_at[0]]
