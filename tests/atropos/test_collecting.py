"""What Atropos does to a worker, and what becomes of its group."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from temporalio.client import WorkflowExecutionStatus

from clotho import failpoints
from clotho.embedded.model import EmbeddedModelServer
from clotho.errors import GroupRejected, InvalidInput, Rejection
from clotho.identifiers.keys import sealed_key
from clotho.plugins.atropos.evaluation import PAUSED_FOR, end_pause
from clotho.plugins.atropos.sweep import sweep
from clotho.plugins.atropos.trainable import require_trainable
from clotho.rollouts.item import Delivery
from clotho.runs.manifest import read_capabilities
from clotho.runs.pauses import pause, reason_for
from clotho.runs.trainer_steps import known_step
from clotho.testing.script import Conversation, Fault, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.atropos.adapter import deliveries, register_trainer
from tests.atropos.inside import adapter, serving_inside
from tests.atropos_api.service import Api, running
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually
from tests.token_servers import SequenceSampler
from tests.workflows.holding import Holding
from tests.workflows.losses import diverging, lose_while_waiting
from tests.workflows.scripts import say, scoring

VERIFIERS = "tests.environments.failing_verifiers"


@pytest.fixture(scope="module")
async def scores() -> AsyncIterator[str]:
    """A model that earns 0, 1, 2 and 3."""
    async with serving(ScriptedModel(Script(conversations=(scoring(0, 1, 2, 3),)))) as url:
        yield url


def held(conversation: Conversation) -> Holding:
    """A model that answers nothing before it is released."""
    return Holding(Script(conversations=(conversation,)), b"")


async def queued(api: Api) -> int:
    return int((await api.http.get("/status")).json()["queue_size"])


async def test_a_cancelled_worker_leaves_the_workflow_and_the_sweeper_delivers(
    cluster: Cluster, api: Api
) -> None:
    model = held(scoring(0, 1, 2, 3))
    async with serving(model) as url, serving_inside(cluster, "left-behind", url, api) as env:
        item = await env.get_next_item()
        worker = asyncio.create_task(env.collect_trajectories(item))
        handle = cluster.client.get_workflow_handle(item.claim.group)

        async def runs() -> bool:
            described = await handle.describe()
            return described.status is WorkflowExecutionStatus.RUNNING

        await asyncio.sleep(0)
        await eventually(lambda: _true_without_error(runs), "the workflow runs")
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert await runs()
        model.release.set()
        author, more = env.collect_trajectories, {"number": 99}

        async def wrapped(item: Any) -> Any:
            groups, _ = await author(item)
            return groups, [] if groups is None else [more]

        env.__dict__["collect_trajectories"] = wrapped
        sweeper = asyncio.create_task(sweep(env))

        async def delivered() -> bool:
            found = await env.adapter_run.ledger.delivery(item.claim.group)
            return found == Delivery()

        await eventually(delivered, "the sweeper delivers")
        sweeper.cancel()
        assert await queued(api) == 1
        assert await env.collect_trajectories(item) == (None, [])
        assert len(env.adapter_run.pending) == 0
        assert env.backlog == [more]
        assert await env.adapter_run.claim_of(more, 0) in env.adapter_run.pending, (
            "what Atropos didn't draw is claimed"
        )


async def _true_without_error(question: Any) -> bool:
    try:
        return bool(await question())
    except Exception:
        return False


async def test_a_send_goes_on_when_its_worker_is_cancelled(
    cluster: Cluster, api: Api, scores: str, tmp_path: Path
) -> None:
    """Atropos forgets the item before it sends: the group would be lost."""
    failpoints.arm("delivery.sent:pause", tmp_path)
    async with serving_inside(cluster, "shielded", scores, api) as env:
        item = await env.get_next_item()
        groups, _ = await env.collect_trajectories(item)
        assert isinstance(groups, dict)
        sending = asyncio.create_task(env.handle_send_to_api(groups, item))

        async def under_way() -> bool:
            return (tmp_path / "delivery.sent").exists()

        await eventually(under_way, "it is being sent")
        failpoints.arm("", tmp_path)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        (tmp_path / "delivery.sent").unlink()
        await env.adapter_run.sender.finish(PATIENCE_SECONDS)
        assert await queued(api) == 1
        assert await env.adapter_run.ledger.delivery(item.claim.group) == Delivery()


async def test_what_atropos_drops_in_silence_is_recorded(cluster: Cluster, api: Api) -> None:
    alike = ScriptedModel(Script(conversations=(scoring(1, 1, 1, 1),)))
    async with serving(alike) as url, serving_inside(cluster, "alike", url, api) as env:
        item = await env.get_next_item()
        groups, _ = await env.collect_trajectories(item)
        assert isinstance(groups, dict)
        await env.handle_send_to_api(groups, item)
        (delivery,) = (await deliveries(cluster, "alike")).values()
        assert delivery.reason == "same_scores"
        wrong = await env.get_next_item()
        groups, _ = await env.collect_trajectories(wrong)
        assert isinstance(groups, dict)
        groups["tokens"].pop()
        groups["scores"][0] = 0.5
        await env.handle_send_to_api(groups, wrong)
        delivery = (await deliveries(cluster, "alike"))[wrong.claim.group]
        assert delivery.reason == "wrong_size"
    assert await queued(api) == 0


async def test_a_group_that_cannot_be_read_or_is_held_back_says_so(
    cluster: Cluster, api: Api, scores: str
) -> None:
    async with serving_inside(cluster, "unreadable", scores, api, group_size=2) as env:
        damaged, held_back = await env.get_next_item(), await env.get_next_item()
        await env.adapter_run.groups.until_scored(damaged.claim, print)
        (cluster.store / sealed_key(f"{damaged.claim.group}/r1")).write_bytes(b"not a rollout")
        assert await env.collect_trajectories(damaged) == (None, [])
        await env.handle_send_to_api(None, held_back)
        found = {group: entry.reason for group, entry in (await deliveries(cluster, "unreadable")).items()}
        assert found == {damaged.claim.group: "corrupt", held_back.claim.group: "withheld"}


@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_delivered_says_what_happened_and_may_leave_it_out(
    cluster: Cluster, api: Api, whole: bool
) -> None:
    variants = ((diverging(), say("Done.")), *scoring(0.5).variants)
    run = f"disturbed-{whole}".lower()
    fields: dict[str, Any] = {"group_size": 2, "exclude_whole_groups": whole}
    if whole:
        fields["exclude_rollouts"] = "replaced, diverged"
    async with (
        serving(ScriptedModel(Script(conversations=(Conversation(variants=variants),)))) as url,
        serving_inside(cluster, run, url, api, **fields) as env,
    ):
        item = await env.get_next_item()
        collecting = asyncio.create_task(env.collect_trajectories(item))
        await lose_while_waiting(cluster, f"{item.claim.group}/r0")
        group, _ = await collecting
        if whole:
            (delivery,) = (await deliveries(cluster, run)).values()
            assert (group, delivery.reason) == (None, "excluded")
            assert delivery.detail.endswith("1 of 2 rollouts were diverged")
            return
        assert isinstance(group, dict)
        await env.handle_send_to_api(group, item)
        sent = (await api.http.get("/status")).json()["queue_size"]
        assert sent >= 1
    told = group["generation_params"]
    assert told["disturbances"] == [["sandbox_lost", "diverged"], []]
    assert told["sandbox_losses"] == [["diverged"], []]
    assert (told["repairs"], told["resumed_turns"]) == ([0, 0], [0, 0])
    assert (told["replacement_of"], told["excluded"]) == ([None, None], [False, False])


async def test_a_verifier_that_gives_no_number_costs_its_group_and_no_other(
    cluster: Cluster, api: Api, scores: str
) -> None:
    fields = {"environment": f"{VERIFIERS}:NotANumber", "group_size": 1, "group_attempts": 1}
    async with serving_inside(cluster, "no-number", scores, api, **fields) as env:
        item = await env.get_next_item()
        assert await env.collect_trajectories(item) == (None, [])
        delivery = (await deliveries(cluster, "no-number"))[item.claim.group]
        assert delivery.reason == "environment_failed"
        assert "a reward must be finite" in delivery.detail
        assert len(env.adapter_run.pending) == 0


async def test_groups_larger_than_a_batch_are_refused(cluster: Cluster, api: Api, scores: str) -> None:
    with pytest.raises(InvalidInput, match=r"groups of 9 don't fit the trainer's batches of 8"):
        async with serving_inside(cluster, "too-large", scores, api, group_size=9):
            pass


async def test_errors_of_the_run_wait_and_burn_no_items(cluster: Cluster, api: Api) -> None:
    """A refused key fails every group: the one in hand waits until somebody has mended it."""
    refused = Fault(kind="status", status=401, requests=(1, 2, 3, 4))
    model = ScriptedModel(Script(conversations=(scoring(0, 1, 2, 3),), faults=(refused,)))
    async with serving(model) as url, serving_inside(cluster, "refused", url, api) as env:
        item = await env.get_next_item()
        groups, _ = await env.collect_trajectories(item)
        assert isinstance(groups, dict)
        assert sorted(groups["scores"]) == [0.0, 1.0, 2.0, 3.0]
        assert await deliveries(cluster, "refused") == {}


async def test_open_groups_are_bounded(cluster: Cluster, api: Api, scores: str) -> None:
    async with serving_inside(cluster, "bounded-groups", scores, api, max_open_groups=2) as env:
        first, second = await env.get_next_item(), await env.get_next_item()
        assert first["number"] != second["number"]
        assert await env.get_next_item() is None
        await env.adapter_run.drop(first.claim, GroupRejected(Rejection.CANCELLED, "to make room"))
        assert (await env.get_next_item())["number"] == 2


async def test_a_restarted_adapter_goes_on_where_the_cursor_was(
    cluster: Cluster, api: Api, scores: str
) -> None:
    """First what was drawn and not delivered, then the next of the dataset."""
    async with serving_inside(cluster, "cursor", scores, api) as env:
        items = [await env.get_next_item() for _ in range(3)]
        await env.adapter_run.ledger.acknowledge(items[1].claim.group)
    async with serving_inside(cluster, "cursor", scores, api) as env:
        again = [await env.get_next_item() for _ in range(3)]
        assert [item["number"] for item in again] == [0, 2, 3]
        assert again[0].claim == items[0].claim
        status = (await api.http.request("GET", "/status-env", json={"env_id": env.env_id})).json()
        assert status["env_weight"] == 1.0, "the ghost is disconnected"


async def test_stale_groups_are_not_sampled_and_not_delivered(
    cluster: Cluster, api: Api, scores: str
) -> None:
    async with serving_inside(cluster, "stale", scores, api, max_weight_lag=1) as env:
        finished, open_ = await env.get_next_item(), await env.get_next_item()
        await env.adapter_run.groups.until_scored(finished.claim, print)
        env.status_dict = {"current_step": 2}
        assert await env.collect_trajectories(finished) == (None, [])
        await env.env_step_checks()
        reasons = {group: entry.reason for group, entry in (await deliveries(cluster, "stale")).items()}
        assert reasons == {finished.claim.group: "stale", open_.claim.group: "stale"}


async def test_the_trainers_step_is_noted_for_the_turns(cluster: Cluster, api: Api, scores: str) -> None:
    async with serving_inside(cluster, "noted-steps", scores, api) as env:
        journal = cluster.open_journal()
        assert await known_step(journal, "noted-steps") is None
        await env.get_status()
        assert await known_step(journal, "noted-steps") == env.status_dict["current_step"]


async def test_chat_data_is_served_only_when_asked_for(cluster: Cluster, api: Api, scores: str) -> None:
    env = adapter(cluster, "refuses-chat", scores, accept_chat_data=False)
    with pytest.raises(InvalidInput, match="accept_chat_data"):
        await env.env_manager()


@pytest.mark.parametrize("processed", [False, True])
async def test_logprobs_that_would_bias_a_trainer_are_refused_at_the_start(
    cluster: Cluster, processed: bool
) -> None:
    """The model server is asked, since it alone shows what its logprobs are of."""
    run = f"biased-{'processed' if processed else 'raw'}"
    async with serving(SequenceSampler(length=1e12, processed=processed)) as url:
        env = adapter(cluster, run, url, "clotho-tiny", inference="tokens", temperature=0.5)
        if processed:
            async with env.opened():
                await require_trainable(env.adapter_run, accept_chat=False)
        else:
            with pytest.raises(InvalidInput, match=r"temperature.*raw.*processed_logprobs"):
                await env.env_manager()
        served = await read_capabilities(cluster.open_journal(), run)
    assert served is not None and served.logprobs_mode == ("processed" if processed else "raw")


async def test_wandb_shows_outcomes_and_tool_errors(cluster: Cluster, api: Api, wandb_folder: Path) -> None:
    failing = ScriptedTurn(calls=(ScriptedCall(name="no_such_tool", arguments={}),))
    variants = ((failing, ScriptedTurn(content="Done.")), *scoring(1).variants)
    model = ScriptedModel(Script(conversations=(Conversation(variants=variants),)))
    async with (
        serving(model) as url,
        serving_inside(cluster, "metrics", url, api, use_wandb=True, group_size=2) as env,
    ):
        await env.setup_wandb()
        item = await env.get_next_item()
        groups, _ = await env.collect_trajectories(item)
        assert isinstance(groups, dict)
        await env.handle_send_to_api(groups, item)
        await env.wandb_log()
        wandb.finish()
    (record,) = wandb_folder.rglob("run-*.wandb")
    names = (
        *("outcome/completed", "turns_mean", "sampled_tokens", "prompt_tokens", "resumed_turns", "repairs"),
        *("rollouts", "tool_errors_count", "tool_error_details", "open_groups"),
    )

    async def logged() -> bool:  # its own process writes the file
        content = record.read_bytes()
        shown = all(f"metrics_0_train/{name}".encode() in content for name in names)
        return shown and b"turn 0 no_such_tool({})" in content

    await eventually(logged, f"{names} in {record}")


async def test_rows_that_the_trainer_would_refuse_are_dropped(
    cluster: Cluster, api: Api, embedded_model: EmbeddedModelServer
) -> None:
    tokens = {"environment": "file_tasks", "inference": "tokens", "model": embedded_model.model}
    async with serving_inside(cluster, "over-length", f"{embedded_model.url}/v1", api, **tokens) as env:
        env.max_token_len = 10
        item = await env.get_next_item()
        assert await env.collect_trajectories(item) == (None, [])
        delivery = (await deliveries(cluster, "over-length"))[item.claim.group]
        assert delivery.reason == "over_length"
        assert "the trainer takes 9" in delivery.detail


async def test_an_evaluation_that_stops_training_pauses_its_rollouts(cluster: Cluster, api: Api) -> None:
    """And one that died with its process doesn't hold them for ever."""
    sizes, model = {"evaluation_groups": 2, "evaluation_group_size": 2}, held(scoring(0, 1))
    async with serving(model) as url, serving_inside(cluster, "held", url, api, **sizes) as env:
        journal, run = env.adapter_run.connections.journal, env.adapter_run.manifest.run
        evaluation = asyncio.create_task(env.evaluate())

        async def is_paused() -> bool:
            return await reason_for(cluster.open_journal(), run) is not None

        await eventually(is_paused, "training is paused")
        model.release.set()
        await evaluation
        assert not await is_paused()
        await pause(journal, run, PAUSED_FOR)
        await end_pause(journal, run)
        assert not await is_paused()
        await pause(journal, run, "by hand")
        await end_pause(journal, run)
        assert await is_paused()


async def test_what_an_api_refuses_is_dropped(cluster: Cluster, scores: str, folder: Path) -> None:
    """Clotho's own refuses rows that no batch could hold."""
    async with running(folder / "api-refusing") as api:
        await register_trainer(api)
        async with serving_inside(cluster, "refused-rows", scores, api) as env:
            item = await env.get_next_item()
            groups, _ = await env.collect_trajectories(item)
            assert isinstance(groups, dict)
            groups["masks"][0] = [1, 2, 3]
            await env.handle_send_to_api(groups, item)
            delivery = (await deliveries(cluster, "refused-rows"))[item.claim.group]
            assert delivery.reason == "refused"
            assert "422" in delivery.detail


@pytest.mark.parametrize("what", ["tool", "bound"])
async def test_process_ends_where_its_settings_fail_every_group(
    cluster: Cluster, scores: str, what: str
) -> None:
    """A distribution that leaves no tool; a server that doesn't say how long a turn may be."""
    toolless = {"distribution": {"file": 1.0}, "environment_config": {"disabled_toolsets": ["file"]}}
    boundless = {"inference": "tokens", "environment_config": {"max_token_length": None}}
    async with serving(SequenceSampler()) as url:
        name, fields = (scores, toolless) if what == "tool" else (url, boundless)
        env = adapter(
            cluster,
            f"no-{what}",
            name,
            "scripted" if what == "tool" else "clotho-tiny",
            data_path_to_save_groups=str(cluster.folder / f"no-{what}.jsonl"),
            **fields,
        )
        env.process_mode, env.n_groups_to_process = True, 1
        with pytest.raises(ExceptionGroup) as refused:
            await asyncio.wait_for(env.process_manager(), PATIENCE_SECONDS)
    (error,) = refused.value.exceptions
    assert isinstance(error, InvalidInput)
    said = {"tool": "no sample of the distribution leaves a tool", "bound": "how long its context is"}
    assert said[what] in str(error)
