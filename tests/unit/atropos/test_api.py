"""An API that answers badly, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clotho.errors import GroupRejected, InvalidInput
from clotho.plugins.atropos.group_sender import Registration, retry_outages
from clotho.plugins.atropos.trainer_api import ApiUnavailable, EnvUnknown, Receipt, TrainerApi
from clotho.processes.ports import free_port
from clotho.testing.scripted_model import serving


class Answering:
    """An API whose next answers are given."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers)
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, _: Request) -> Response:
        return self.answers.pop(0)


@asynccontextmanager
async def answering(*answers: Response) -> AsyncIterator[TrainerApi]:
    async with serving(Answering(*answers)) as url:
        api = TrainerApi(url.removesuffix("/v1"))
        try:
            yield api
        finally:
            await api.aclose()


def received(**more: Any) -> Response:
    return JSONResponse({"status": "received", **more})


@pytest.mark.parametrize(
    "answer",
    [
        Response("oh no", 500),
        JSONResponse({"status": "no trainer"}, 503),
        Response("slow down", 429),
        Response("a wrong token", 401),
        Response("an unknown name", 403),
        Response("<html>a proxy</html>"),
        JSONResponse([1]),
    ],
)
async def test_what_may_pass_is_an_outage(answer: Response) -> None:
    async with answering(answer, received()) as api:
        with pytest.raises(ApiUnavailable):
            await api.send([{}])
        assert await api.send([{}]) == Receipt(duplicate=False, buffered=False)


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_what_is_refused_for_good_is_unfit(status: int) -> None:
    async with answering(Response("no", status)) as api:
        with pytest.raises(GroupRejected) as refused:
            await api.send([{}])
    assert refused.value.reason == "refused"
    assert f"{status}: no" in str(refused.value)


def test_a_url_that_holds_the_token_is_refused() -> None:
    """It would be shown, kept and sent to wandb."""
    with pytest.raises(InvalidInput, match="name the token's variable") as refused:
        TrainerApi("http://any:hush@trainer:8000")
    assert "hush" not in str(refused.value)


async def test_nobody_there_is_an_outage_that_is_waited_out() -> None:
    api = TrainerApi(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ApiUnavailable):
        await api.send([{}])
    waiting = asyncio.create_task(retry_outages(lambda: api.get("/status"), "see whether it is back"))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await api.aclose()


async def test_what_json_cannot_say_is_never_sent() -> None:
    async with answering() as api:
        with pytest.raises(GroupRejected) as refused:
            await api.send([{"inference_logprobs": [[-float("inf")]]}])
    assert refused.value.reason == "non_finite"


async def test_receipts_say_duplicate_and_buffered() -> None:
    async with answering(received(duplicates=1), received(buffered=1), received(duplicate=True)) as api:
        receipts = [await api.send([{"tokens": [[1] * 2000]}]) for _ in range(3)]
    assert [receipt.duplicate for receipt in receipts] == [True, False, True]
    assert [receipt.buffered for receipt in receipts] == [False, True, False]


async def test_an_api_without_this_environment_is_told_from_an_outage() -> None:
    async with answering(
        Response("IndexError", 500), JSONResponse({}), Response("x", 500), Response("x", 500)
    ) as api:
        with pytest.raises(EnvUnknown):
            await api.status(3)
        with pytest.raises(ApiUnavailable) as outage:
            await api.status(3)
    assert not isinstance(outage.value, EnvUnknown)


@pytest.mark.parametrize(
    ("before", "now", "stale_registration"),
    [
        ((0, "env_0"), (1, "env_1"), True),
        ((0, "env_0"), (0, "env_0"), False),
        ((0, "env_0"), (3, "env_0"), False),
        ((2, "env_1"), (1, "env_0"), False),
    ],
)
def test_a_registration_at_a_restarted_api_is_somebody_elses(
    before: tuple[int, str], now: tuple[int, str], stale_registration: bool
) -> None:
    earlier, later = (Registration(url="http://api", env_id=id_, name=name) for id_, name in (before, now))
    assert earlier.is_stale_registration_of(later) is stale_registration
