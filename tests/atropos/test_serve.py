"""Groups reach the trainer over the deaths of everybody on the way."""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.environment.loading import make_environment
from clotho.listeners.tokens import token_of_port
from clotho.plugins.atropos.main import REJECTED
from clotho.processes.child import ChildProcess
from clotho.rollouts.item import Item
from clotho.runs.ledger import Ledger
from tests.atropos.adapter import (
    GROUP_SIZE,
    Adapter,
    deliveries,
    name_of,
    register_trainer,
    serving,
    take_groups,
)
from tests.atropos_api.service import running
from tests.cluster import Cluster
from tests.support import eventually


def check_rows(group: dict[str, Any]) -> None:
    """As a trainer takes them: whole groups, and a logprob for every token that is trained on."""
    assert len(group["tokens"]) == len(group["scores"]) == len(group["messages"]) == GROUP_SIZE
    for tokens, masks, logprobs in zip(
        group["tokens"], group["masks"], group["inference_logprobs"], strict=True
    ):
        assert len(tokens) == len(masks) == len(logprobs) > 0
        for token, mask, logprob in zip(tokens, masks, logprobs, strict=True):
            assert (mask == -100 and logprob == 1.0) or (mask == token and logprob <= 0.0)
            assert math.isfinite(logprob)
    assert group["generation_params"]["trainable"] is True
    assert group["generation_params"]["temperature"] == 1.0


async def check_it_is_alone(adapter: Adapter, run: str) -> None:
    second = ChildProcess(adapter.argv, adapter.process.log.with_suffix(".second.log"))
    await second.start()
    assert await second.wait() == REJECTED
    assert re.match(rf"run {run} is served by process \d+ on \S+ since .* UTC: stop", second.last_words)
    assert adapter.process.running


async def drawn_items(cluster: Cluster, run: str) -> list[Item]:
    return [claim.item for claim in await Ledger(cluster.open_journal(), run).load()]


async def first_items(number: int) -> list[Item | None]:
    environment = make_environment("file_tasks", {})
    await environment.setup()
    return [await environment.get_next_item() for _ in range(number)]


@pytest.mark.parametrize("stock", [False, True])
@pytest.mark.slow
async def test_an_adapter_killed_before_it_noted_an_answer_loses_nothing(
    cluster: Cluster, embedded_model: EmbeddedModelServer, folder: Path, stock: bool
) -> None:
    """Clotho's API knows the group that is sent again. Atropos' own has it twice: that window stays open.

    Nothing of it is on the host: the second adapter goes on from another one's name, home and folder, and is
    given the API's token in a variable.
    """
    run = f"killed-{'stock' if stock else 'durable'}"
    async with (
        running(folder / f"api-{run}", stock=stock) as api,
        serving(
            cluster, run, embedded_model, api, ensure_scores_are_not_same=False, max_open_groups=6
        ) as adapter,
    ):
        await register_trainer(api)
        await adapter.start(CLOTHO_FAIL="delivery.sent:kill@2")
        assert await adapter.process.wait() != 0
        before = await deliveries(cluster, run)
        drawn = len(await drawn_items(cluster, run))
        # The API took two, at least. Several are delivered at once, so the first may not be noted either.
        unnoted = 2 - len(before)
        assert unnoted >= 1
        elsewhere = [word.replace("CLOTHO_HOST=", "CLOTHO_HOST=another-") for word in adapter.argv]
        adapter.argv = ["env", f"--chdir={folder}", f"HOME={folder}", *elsewhere]
        await adapter.start(CLOTHO_TOKEN=token_of_port(api.port).text)
        groups = await take_groups(api, 6)
        if not stock:
            await check_it_is_alone(adapter, run)
        for group in groups:
            check_rows(group)
        sent = Counter(map(name_of, groups))

        def repeated() -> int:
            return sent.total() - len(sent)

        async def all_arrived() -> bool:
            """Atropos hands batches out in no order of theirs."""
            batch = (await api.http.get("/batch")).json()["batch"]
            sent.update(map(name_of, batch or []))
            return set(before) <= set(sent) and (not stock or repeated() >= unnoted)

        await eventually(all_arrived, "what was acknowledged has arrived, and what was sent again")
        assert set(sent.values()) <= ({1, 2} if stock else {1})
        assert repeated() >= unnoted if stock else repeated() == 0

        async def more_drawn() -> bool:
            return len(await drawn_items(cluster, run)) > drawn

        await eventually(more_drawn, "items beyond those of the killed adapter")

        async def sent_again() -> bool:
            return "sent again" in adapter.process.output

        await eventually(sent_again, "the warning of a group that is sent again")
        items = await drawn_items(cluster, run)
        assert items == await first_items(len(items)), "the dataset goes on where it was"
        assert "a-secret-key" not in adapter.process.log.read_text()
        assert "clotho-tiny" in adapter.process.output, "the configuration is printed"
        stale_registration = (await api.http.request("GET", "/status-env", json={"env_id": 1})).json()
        assert stale_registration["env_weight"] == 1.0, "the adapter before this one is disconnected"


@pytest.mark.slow
async def test_an_api_that_dies_is_waited_for(
    cluster: Cluster, embedded_model: EmbeddedModelServer, folder: Path
) -> None:
    """Atropos' own forgets everything: the adapter registers again once a trainer has, and delivers the rest."""
    async with (
        running(folder / "api-died", stock=True) as api,
        serving(cluster, "api-died", embedded_model, api, ensure_scores_are_not_same=False) as adapter,
    ):
        await register_trainer(api)
        await adapter.start()
        first = await take_groups(api, 2)
        await api.process.kill()

        async def waits() -> bool:
            return "waiting to" in adapter.process.output

        await eventually(waits, "the adapter waits")
        await api.start()

        async def noticed() -> bool:
            return "has forgotten this environment" in adapter.process.output

        await eventually(noticed, "the adapter registers again")
        await register_trainer(api)
        second = await take_groups(api, 2)
        assert adapter.process.running
        assert not {name_of(group) for group in first} & {name_of(group) for group in second}
        status = (await api.http.request("GET", "/status-env", json={"env_id": 0})).json()
        assert status["env_weight"] == 1.0


@pytest.mark.slow
async def test_an_adapter_that_is_told_to_stop_brings_what_is_on_its_way(
    cluster: Cluster, embedded_model: EmbeddedModelServer, folder: Path, tmp_path: Path
) -> None:
    run, held = "told-to-stop", tmp_path / "delivery.due"
    async with (
        running(folder / "api-told-to-stop", stock=True) as api,
        serving(cluster, run, embedded_model, api, ensure_scores_are_not_same=False) as adapter,
    ):
        await register_trainer(api)
        await adapter.start(CLOTHO_FAIL="delivery.due:pause", CLOTHO_FAIL_FOLDER=str(tmp_path))

        async def on_its_way() -> bool:
            return held.exists()

        await eventually(on_its_way, "a group is about to be sent")
        group = held.read_text().partition(" ")[2].removesuffix("/delivered")
        adapter.process.terminate()

        async def told() -> bool:
            return "told to stop" in adapter.process.output

        await eventually(told, "the adapter has heard of it")
        assert group not in await deliveries(cluster, run)
        held.unlink()
        assert await adapter.process.wait() == 0, adapter.process.output
        assert (await deliveries(cluster, run))[group].reason is None, "it was acknowledged"
