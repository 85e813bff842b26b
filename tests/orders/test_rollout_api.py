"""Groups ordered over HTTP: once each by name, whatever dies, and refused with a reason."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest
from clotho_client.client import AsyncRolloutClient, RolloutClient
from clotho_client.errors import RequestRefused
from clotho_client.orders import ClaimOrder, Endpoint, GroupAnswer, GroupOrder, Inference, OrderState
from temporalio.client import WorkflowExecutionStatus

from clotho.embedded.model import EmbeddedModelServer
from clotho.listeners.connections import HEADER_SECONDS
from clotho.listeners.tokens import TokenAuth
from clotho.processes.ports import free_port
from tests.cluster import Cluster
from tests.orders.service import RolloutService, file_item, file_tasks, serving_rollouts
from tests.support import PATIENCE_SECONDS, eventually

TOKEN = "letters-and-digits-1"


@pytest.fixture(scope="module")
async def service(cluster: Cluster) -> AsyncIterator[RolloutService]:
    async with serving_rollouts(cluster) as running:
        yield running


@pytest.fixture
def client(service: RolloutService) -> RolloutClient:
    return RolloutClient(service.url)


async def asked(call: Any, *arguments: Any, **options: Any) -> Any:
    """Call a method of the client beside the event loop."""
    return await asyncio.to_thread(partial(call, *arguments, **options))


async def test_a_name_is_rolled_out_once(client: RolloutClient, embedded_model: EmbeddedModelServer) -> None:
    run = "ordered-once"
    for size in (3, 2, 2):
        await asked(client.open_run, run, file_tasks(embedded_model, group_size=size))
    order = GroupOrder(item=file_item(1), step=4)
    first, again = await asyncio.gather(*(asked(client.order, run, "step-4-0", order) for _ in range(2)))
    assert first.group == again.group == f"{run}/i-step-4-0.0"
    with pytest.raises(RequestRefused, match=r"409.*group_size"):
        await asked(client.open_run, run, file_tasks(embedded_model, group_size=3))
    with pytest.raises(RequestRefused, match=r"409.*another item"):
        await asked(client.order, run, "step-4-0", GroupOrder(item=file_item(2)))
    finished: GroupAnswer = await asked(client.wait, run, "step-4-0")
    assert finished.rows is not None
    assert {row.rollout for row in finished.rows} == {f"{first.group}/r0", f"{first.group}/r1"}
    assert await asked(client.unacknowledged, run) == ("step-4-0",)
    assert (await asked(client.acknowledge, run, "step-4-0")).acknowledged
    assert (await asked(client.acknowledge, run, "step-4-0")).acknowledged
    assert await asked(client.unacknowledged, run) == ()
    assert (await asked(client.fetch, run, "step-4-0")).rows == finished.rows
    assert (await asked(client.cancel, run, "step-4-0")).state is OrderState.FINISHED
    aged = await asked(client.fetch, run, "step-4-0", step=9, max_lag=2)
    assert (aged.state, aged.reason) == (OrderState.REFUSED, "unknown_version")


@pytest.mark.slow
async def test_orders_outlive_their_server(cluster: Cluster, embedded_model: EmbeddedModelServer) -> None:
    run = "ordered-killed"
    async with serving_rollouts(cluster) as service:
        client = RolloutClient(service.url)
        await asked(client.open_run, run, file_tasks(embedded_model))
        await asked(client.order, run, "a", GroupOrder(item=file_item(1)))
        waiting = asyncio.create_task(asked(client.wait, run, "a"))
        await service.process.kill()
        await service.start()
        finished = await waiting
        async with serving_rollouts(cluster) as other:
            elsewhere = RolloutClient(other.url)
            assert await asked(elsewhere.order, run, "a", GroupOrder(item=file_item(1))) == finished
            await asked(elsewhere.order, run, "b", GroupOrder(item=file_item(2)))
            # This server hasn't seen the other's order, which took the next number.
            assert (await asked(client.order, run, "c", GroupOrder(item=file_item(3)))).group.endswith(
                "i-c.0"
            )
            assert (await asked(client.order, run, "b", GroupOrder(item=file_item(2)))).group.endswith(
                "i-b.0"
            )
            for name in ("b", "c"):
                assert (await asked(client.wait, run, name)).state is OrderState.FINISHED
    assert finished.state is OrderState.FINISHED


async def test_a_cancelled_group_has_no_rows_and_stays_cancelled(
    cluster: Cluster, client: RolloutClient, embedded_model: EmbeddedModelServer
) -> None:
    run, nowhere = (
        "ordered-cancelled",
        Endpoint(base_url=f"http://127.0.0.1:{free_port()}/v1", inference=Inference.TOKENS),
    )
    await asked(client.open_run, run, file_tasks(embedded_model, endpoint=nowhere))
    assert (await asked(client.order, run, "a", GroupOrder(item=file_item(1)))).state is OrderState.OPEN
    with pytest.raises(RequestRefused, match=r"409.*not finished"):
        await asked(client.acknowledge, run, "a")
    for _ in range(2):
        cancelled = await asked(client.cancel, run, "a")
        assert (cancelled.state, cancelled.reason, cancelled.rows) == (OrderState.REFUSED, "cancelled", None)
    assert await asked(client.order, run, "a", GroupOrder(item=file_item(1))) == cancelled

    async def ended() -> bool:
        described = await cluster.client.get_workflow_handle(cancelled.group).describe()
        return described.status is WorkflowExecutionStatus.CANCELED

    await eventually(ended, "the group's workflow has ended")
    assert await asked(client.unacknowledged, run) == ()


async def test_each_life_claims_the_same_groups_in_the_same_order(
    service: RolloutService, embedded_model: EmbeddedModelServer
) -> None:
    client, run = AsyncRolloutClient(service.url), "claimed"
    await client.open_run(run, file_tasks(embedded_model, group_size=1))

    async def claim(life: str, claim: str) -> str:
        order = ClaimOrder(item=file_item(1), key="task 1 under policy 3", life=life)
        return (await client.claim(run, claim, order)).name

    first = sorted(await asyncio.gather(*(claim("one", each) for each in "abc")))
    assert [name.rpartition("-")[2] for name in first] == ["0", "1", "2"]
    assert await claim("one", "b") in first, "the same claim again"
    assert [await claim("two", each) for each in "de"] == first[:2]
    await client.cancel(run, first[1])
    assert [await claim("three", each) for each in "fg"] == [first[0], first[2]]
    assert (await client.wait(run, first[2])).state is OrderState.FINISHED
    await client.close()


async def test_groups_without_tokens_are_refused(
    client: RolloutClient, embedded_model: EmbeddedModelServer
) -> None:
    chat = Endpoint(base_url=f"{embedded_model.url}/v1")
    await asked(client.open_run, "ordered-chat", file_tasks(embedded_model, endpoint=chat))
    await asked(client.order, "ordered-chat", "a", GroupOrder(item=file_item(1)))
    refused = await asked(client.wait, "ordered-chat", "a")
    assert (refused.state, refused.reason, refused.rows) == (OrderState.REFUSED, "chat_mode", None)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/runs/no-such-run/groups", None, 404),
        ("GET", "/runs/~runs/groups/a", None, 404),
        ("GET", "/runs/refusing/groups/never-ordered", None, 404),
        ("GET", "/runs/refusing/groups/a?wait=1e9", None, 422),
        ("GET", "/runs/refusing/groups/a?unknown=1", None, 422),
        ("GET", "/runs/refusing/groups/a?max_lag=1", None, 422),
        ("PUT", "/runs/refusing/groups/a", b"{}", 422),
        ("PUT", "/runs/refusing/groups/a", b"not JSON", 422),
        ("PUT", "/runs/refusing/groups/%20", b'{"item": {}}', 409),
        ("PUT", "/runs/Refusing", None, 422),
        ("POST", "/runs/refusing/groups/a", None, 405),
    ],
)
async def test_what_does_not_fit_is_refused(
    service: RolloutService,
    client: RolloutClient,
    embedded_model: EmbeddedModelServer,
    method: str,
    path: str,
    body: bytes | None,
    status: int,
) -> None:
    await asked(client.open_run, "refusing", file_tasks(embedded_model))
    async with httpx.AsyncClient(base_url=service.url, timeout=PATIENCE_SECONDS, auth=TokenAuth()) as http:
        answer = await http.request(method, path, content=body)
    assert answer.status_code == status, answer.text
    assert status == 405 or answer.json()["error"]


async def test_the_document_has_every_operation(service: RolloutService) -> None:
    async with httpx.AsyncClient(base_url=service.url, timeout=PATIENCE_SECONDS, auth=TokenAuth()) as http:
        document = (await http.get("/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        for path, operations in document["paths"].items():
            filled = path.replace("{run}", "no-such-run").replace("{name}", "a").replace("{claim}", "a")
            for method in operations:
                answer = await http.request(method, filled)
                assert answer.status_code in (404, 422), (method, path)
                assert answer.json().keys() == {"error"}


@pytest.mark.attack("listeners", "a request without the token, where one is asked for")
async def test_a_token_is_asked_for(cluster: Cluster) -> None:
    variables = (f"ROLLOUT_TOKEN={TOKEN}",)
    async with serving_rollouts(cluster, "--token-variable", "ROLLOUT_TOKEN", variables=variables) as service:
        with pytest.raises(RequestRefused, match="401"):
            await asked(RolloutClient(service.url).unacknowledged, "no-such-run")
        with pytest.raises(RequestRefused, match="404"):
            await asked(RolloutClient(service.url, TOKEN).unacknowledged, "no-such-run")


@pytest.mark.attack("listeners", "connections whose headers never end")
@pytest.mark.slow  # for as long as headers may take
async def test_a_request_whose_headers_do_not_end_is_hung_up_on(service: RolloutService) -> None:
    reader, writer = await asyncio.open_connection(*service.url.removeprefix("http://").split(":"))
    try:
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
        async with asyncio.timeout(HEADER_SECONDS + PATIENCE_SECONDS):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
    finally:
        writer.close()
