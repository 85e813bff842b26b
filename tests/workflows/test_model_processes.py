"""Several processes that call models: a rollout stays with one, and leaves it only when it is gone."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.budgets import BudgetWatch
from activities.llm import Model
from activities.sampling import TurnSampler
from activities.turn_claims import TurnClaims
from clotho.identifiers.keys import process_key, prompt_key, tools_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import ModelBackend, SampledTurn, TurnCall, Usage
from clotho.models.endpoint import Endpoint
from clotho.models.messages import ChatMessage
from clotho.models.pacing import Pacer
from clotho.models.rendering.rendering import Rendering
from clotho.monitoring.metrics import Metrics
from clotho.processes.liveness import Liveness, Presence, heartbeat_age
from clotho.processes.load import ProcessLoad
from clotho.processes.roles import ProcessSlot
from clotho.rollouts.group import ToolManifest
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import ChosenProcess, FirstTurnRequest, TurnRequest
from clotho.runs.manifest import open_run
from clotho.runs.request import run_manifest
from clotho.temporal.states import served_namespace
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import serving
from tests.cluster import Cluster
from tests.support import ONE_FILE, eventually, start
from tests.workflows.holding import FIRST_TURNS, LATER_TURNS, Holding
from tests.workflows.scripts import run, say


def script(latency: float, commands: int = 2) -> Script:
    turns = (*[run("true")] * commands, say("Done."))
    return Script(conversations=(Conversation(variants=(turns,)),), latency=latency)


@pytest.mark.slow
async def test_a_stopped_process_pays_for_no_call_twice(private_cluster: Cluster) -> None:
    """One of two is stopped in the middle of its calls for longer than heartbeats may be silent."""
    cluster = private_cluster
    model = Holding(script(latency=0.0), held=FIRST_TURNS)
    async with serving(model) as url:
        await cluster.start_worker("workflows,tools")
        for _ in range(2):
            await cluster.start_worker("llm")
        handle = await start(cluster, "stopped", url, groups=4, group_size=2)
        await model.held(8)
        described = await cluster.client.get_workflow_handle("stopped/g000000/r0").describe()
        [call] = described.raw_description.pending_activities
        at_work = int(call.last_worker_identity.partition("@")[0])  # nobody knows which of the two it is
        os.kill(at_work, signal.SIGSTOP)

        async def retried() -> bool:
            rollouts = [f"stopped/g00000{group}/r{sibling}" for group in range(4) for sibling in range(2)]
            described = [await cluster.client.get_workflow_handle(name).describe() for name in rollouts]
            return any(
                call.attempt > 1 for one in described for call in one.raw_description.pending_activities
            )

        await eventually(retried, "a call of the stopped process tried again")
        os.kill(at_work, signal.SIGCONT)
        model.release.set()
        progress = await handle.result()
    assert progress.rollouts == 8
    assert model.calls.paid_twice == {}
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_the_rollouts_of_a_dead_process_move_to_another(private_cluster: Cluster) -> None:
    cluster = private_cluster
    model = Holding(script(latency=0.0), held=LATER_TURNS)
    async with serving(model) as url:
        await cluster.start_worker("workflows,tools")
        doomed = await cluster.start_worker("llm")
        handle = await start(cluster, "moved", url)
        await model.held(1)
        survivor = await cluster.start_worker("llm")

        async def seated() -> bool:
            return len({key.split("/")[1] for key in await cluster.open_journal().keys("~present/")}) >= 3

        await eventually(seated, "both processes present")
        await doomed.kill()
        paid = set(model.calls.completed)
        model.release.set()
        await handle.result()
        assert survivor.running
    assert paid == {turn_key("moved/g000000/r0", 0)}, "it must die on the way"
    assert model.calls.paid_twice == {}


class Backend:
    """Answers after a while, and counts how many calls are open."""

    capabilities = None
    open = most_open = 0

    def __init__(self, answers: Callable[[], Awaitable[object]] | None = None) -> None:
        self._answers = answers or partial(asyncio.sleep, 0.05)

    async def sample_turn(self, call: TurnCall) -> SampledTurn:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._answers()
        finally:
            self.open -= 1
        return SampledTurn(
            message=ChatMessage(role="assistant", content="Done."),
            finish_reason="stop",
            usage=Usage(),
            model="scripted",
            sampling=call.sampling,
            started=0.0,
            seconds=0.0,
        )

    async def check(self, model: str) -> None: ...

    def at(self, endpoint: Endpoint, model: str, rendering: Rendering | None) -> ModelBackend:
        return self


@pytest.fixture
async def journal(tmp_path: Path) -> Journal:
    journal = Journal(FilesystemStore(tmp_path))
    await open_run(
        journal, run_manifest(ONE_FILE, "agreed", "scripted"), Endpoint(base_url="http://127.0.0.1:1/v1")
    )
    await journal.write(tools_key("agreed/g000000"), ToolManifest(toolsets=(), tools=(), unavailable={}))
    return journal


def model_process(
    cluster: Cluster,
    journal: Journal,
    backend: Backend,
    queue: str,
    most_calls: int,
    metrics: Metrics | None = None,
) -> Model:
    budgets = BudgetWatch(journal, cluster.client, queue)
    pacer = Pacer(journal, queue, {}, no_metrics, most_calls, ProcessLoad())
    namespace = served_namespace(cluster.client)
    liveness = Liveness(journal, queue, namespace=namespace)
    claims = TurnClaims(journal, Presence(journal, namespace), liveness, queue)
    turns = TurnSampler(journal, backend, queue, None, metrics or Metrics(), budgets, pacer, claims)
    return Model(journal, turns, backend, queue, claims)


async def no_metrics(server: Endpoint) -> None:
    """The metrics of a server that has none."""


async def test_attempts_of_a_workflow_agree_on_the_process_of_its_turns(
    cluster: Cluster, journal: Journal
) -> None:
    """Temporal may have given up on the first, whose call is still in flight."""
    backend, rollout = Backend(), "agreed/g000000/r0"
    await journal.write(prompt_key(rollout), Prompt(item={}, messages=(), seed=0))
    one, other = (model_process(cluster, journal, backend, queue, 1) for queue in ("one", "other"))
    request = FirstTurnRequest(rollout=rollout, turn=0, sample=True)
    attempt = ActivityEnvironment()
    first = await attempt.run(one.sample_first_turn, request.model_copy(update={"sample": False}))
    second = await attempt.run(other.sample_first_turn, request)
    assert first.model_queue == second.model_queue == "one"
    assert second.turn is None, "left to the process that may have a call in flight"
    assert (await attempt.run(one.sample_first_turn, request)).turn is not None
    attempt.info = replace(attempt.info, workflow_run_id="another-run")
    assert (await attempt.run(other.sample_first_turn, request)).model_queue == "other"
    assert backend.most_open == 1


class CountedRepayments(Metrics):
    by_partition = 0

    def count_repaid_by_partition(self) -> None:
        self.by_partition += 1


async def test_a_turn_asked_for_in_anothers_stead_ends_with_the_answer_of_that_one(
    cluster: Cluster, journal: Journal, tmp_path: Path
) -> None:
    """The first process is cut off while it waits for its answer, and writes it when the store is back."""
    answers = asyncio.Event()
    cut_off, slow, metrics = Backend(answers.wait), Backend(asyncio.Event().wait), CountedRepayments()
    rollout = "agreed/g000000/r0"
    await journal.write(prompt_key(rollout), Prompt(item={}, messages=(), seed=0))
    chosen = process_key(rollout, ActivityEnvironment().info.workflow_run_id or "")
    await journal.write(chosen, ChosenProcess(queue="one"))
    one = model_process(cluster, journal, cut_off, "one", 1)
    other = model_process(cluster, Journal(FilesystemStore(tmp_path)), slow, "other", 1, metrics)
    request = TurnRequest(rollout=rollout, turn=0)

    async def asked(backend: Backend) -> bool:
        return backend.open == 1

    first = asyncio.create_task(ActivityEnvironment().run(one.sample_turn, request))
    await eventually(partial(asked, cut_off), "the first call")
    await journal.delete(await journal.keys("~present/one/"))  # as if they were old
    in_stead = asyncio.create_task(ActivityEnvironment().run(other.sample_turn, request))
    await eventually(partial(asked, slow), "the second call")
    answers.set()
    assert await first is not None and await in_stead is not None
    assert slow.open == 0, "it was hung up on"
    assert metrics.by_partition == 1


async def test_a_process_bounds_its_model_calls_whichever_queue_they_come_from(
    cluster: Cluster, journal: Journal
) -> None:
    backend = Backend()
    model = model_process(cluster, journal, backend, "one", most_calls=2)
    rollouts = [f"agreed/g000000/r{number}" for number in range(8)]
    for rollout in rollouts:
        await journal.write(prompt_key(rollout), Prompt(item={}, messages=(), seed=0))
    await asyncio.gather(
        *(
            ActivityEnvironment().run(
                model.sample_first_turn,
                FirstTurnRequest(rollout=rollout, turn=0, sample=True),
            )
            for rollout in rollouts[::2]
        ),
        *(
            ActivityEnvironment().run(model.sample_turn, TurnRequest(rollout=rollout, turn=0))
            for rollout in rollouts[1::2]
        ),
    )
    assert backend.most_open <= 2


async def test_presence_is_seen_and_its_signs_do_not_pile_up(private_cluster: Cluster) -> None:
    journal = private_cluster.open_journal()
    assert await heartbeat_age(journal, "somebody") == float("inf")
    presence, began = Liveness(journal, "somebody"), int(time.time())
    for _ in range(4):
        await presence.beat()
    assert await heartbeat_age(journal, "somebody") <= time.time() - began
    assert len(await journal.keys("~present/somebody/")) <= 2


async def test_processes_that_start_again_in_another_order_serve_their_old_queues(
    private_cluster: Cluster,
) -> None:
    """Otherwise every rollout waits for its process's heartbeat to run out before it is sampled elsewhere."""
    cluster, journal = private_cluster, private_cluster.open_journal()

    async def queues_served(in_order: tuple[str, ...]) -> set[str]:
        """The three queues that new processes of these roles, started one after the other, show heartbeats of."""
        earlier = set(await journal.keys("~present/"))

        async def shown() -> set[str]:
            return {key.split("/")[1] for key in {*await journal.keys("~present/")} - earlier}

        wanted = 0
        for role in in_order:
            await cluster.start_worker(role)
            wanted += 1 if role == "llm" else 2  # of tools: the host's queue, and the process's own

            async def all_shown(wanted: int = wanted) -> bool:
                return len(await shown()) == wanted

            await eventually(all_shown, f"{wanted} queues")
        return await shown()

    before = await queues_served(("tools", "llm"))
    for process in cluster.workers:
        await process.kill()
    assert await queues_served(("llm", "tools")) == before


def test_seats_are_taken_once_and_freed_by_death(tmp_path: Path) -> None:
    folder = tmp_path / "seats"
    first, second = ProcessSlot(folder), ProcessSlot(folder)
    assert (first.number, second.number) == (0, 1)
    child = os.fork()
    if child == 0:
        ProcessSlot(folder)
        os._exit(0)
    os.waitpid(child, 0)
    assert ProcessSlot(folder).number == 2
