"""Metrics that real workers export during a real run, and the dashboard that asks for them."""

import logging
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.rollouts import Rollouts
from clotho.errors import StoreUnavailable
from clotho.identifiers.keys import reward_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.messages import ChatMessage
from clotho.monitoring.endpoint import PORTS, open_runtime
from clotho.monitoring.metrics import Metrics
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import ConcludeRequest, RolloutSummary, Totals
from clotho.rollouts.verification import RewardEntry
from clotho.testing.script import Fault, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.worker_settings import MetricsSettings
from tests.cluster import Cluster
from tests.monitoring.exported import ADDRESS, check_answered, exported_by, queries, total
from tests.support import PATIENCE_SECONDS, start
from tests.workflows.scripts import scoring


@pytest.mark.slow
async def test_every_metric_of_the_dashboard_is_exported_by_a_worker_that_rolls_out(
    private_cluster: Cluster,
) -> None:
    worker = await private_cluster.start_worker()
    fault = Fault(kind="status", status=503, headers={"retry-after": "0"}, requests=(1,))
    model = ScriptedModel(Script(conversations=(scoring(1.0),), faults=(fault,)))
    async with serving(model) as url:
        await (await start(private_cluster, "measured", url, group_size=2)).result()
    exported = await exported_by(worker)
    assert len(check_answered(queries(), exported)) > 12

    count = partial(total, exported)
    assert count("clotho_turns_total", outcome="sampled") == 4
    assert count("clotho_turn_seconds_count") == 4
    assert count("clotho_calls_total", tool="terminal", outcome="ok") == 2
    assert count("clotho_rollouts_total", outcome="completed") == 2
    assert count("clotho_sandboxes_made_total", fidelity="new") == 2
    assert count("clotho_failed_attempts_total", reason="ModelUnavailable", retried="true") == 1
    assert count("clotho_repaid_turns_total") == 0
    assert count("clotho_store_request_seconds_count", request="create") > 10
    assert {own["roles"] for _, own, _ in exported} == {"workflows+tools+llm"}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken


def test_the_next_free_port_is_taken(listener: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    taken = listener.getsockname()[1]
    with caplog.at_level(logging.INFO):
        served = open_runtime(MetricsSettings(port=taken), {})  # which holds the port while it lives
        served.log()
    found = ADDRESS.search(caplog.text)
    assert found is not None
    assert taken < int(found[1].split(":")[2].split("/")[0]) < taken + PORTS
    assert httpx.get(found[1], timeout=PATIENCE_SECONDS).status_code == 200
    del served


def test_without_a_port_the_worker_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    served = open_runtime(MetricsSettings(port=9464, host="192.0.2.1"), {})
    served.log()
    assert "no metrics: ports from 9464 on at 192.0.2.1" in caplog.text
    served.runtime.metric_meter.create_counter("counted").add(1)


async def test_a_turn_that_another_process_was_paid_for_is_counted(tmp_path: Any) -> None:
    repaid: list[str] = []
    store = FilesystemStore(tmp_path)
    here, elsewhere = Journal(store, repaid.append), Journal(store)
    key = turn_key("run/g000000/r0", 0)

    async def answered_meanwhile() -> ChatMessage:
        await elsewhere.write(key, ChatMessage(role="assistant", content="first"))
        return ChatMessage(role="assistant", content="second")

    assert (await here.once(key, ChatMessage, answered_meanwhile)).content == "first"
    assert repaid == [key]
    other = turn_key("run/g000000/r0", 1)

    async def answered() -> ChatMessage:
        return ChatMessage(role="assistant", content="only")

    await here.once(other, ChatMessage, answered)
    assert repaid == [key]


class UnsealedOnce(FilesystemStore):
    """A store that is away when a rollout is sealed for the first time."""

    away = True

    async def create(self, key: str, body: bytes) -> bool:
        if key.endswith("/sealed") and self.away:
            self.away = False
            raise StoreUnavailable("away")
        return await super().create(key, body)


class Counted(Metrics):
    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[RolloutSummary] = []

    def count_rollout(self, rollout: RolloutSummary) -> None:
        self.rollouts.append(rollout)


async def test_a_rollout_is_counted_once_however_often_its_end_is_written(tmp_path: Any) -> None:
    rollout, metrics = "run/g000000/r0", Counted()
    ending, store = Ending(outcome=Outcome.COMPLETED), UnsealedOnce(tmp_path)
    await Journal(store).write(
        reward_key(rollout),
        RewardEntry(score=1.0, breakdown={}, log="", lease=None, epoch=0, seconds=0.1),
    )
    request = ConcludeRequest(rollout=rollout, ending=ending, totals=Totals(), losses=())
    with pytest.raises(ApplicationError):
        await ActivityEnvironment().run(Rollouts(Journal(store), metrics).conclude, request)
    # The attempt after it is another process's, which finds the end in the store.
    for journal in (Journal(store), Journal(store)):
        summary = await ActivityEnvironment().run(Rollouts(journal, metrics).conclude, request)
    assert metrics.rollouts == [summary]
