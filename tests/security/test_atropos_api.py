"""Requests to the durable Atropos API that a web page, a neighbour or a broken client could send."""

import asyncio
import base64
import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from clotho.plugins.atropos.trainer_api import TrainerApi
from tests.atropos_api.service import ENV, TRAINER, Api, group, number_of, running
from tests.processor_time import processor_seconds
from tests.support import PATIENCE_SECONDS

SMALL = {
    "CLOTHO_PLUGINS__ATROPOS__MAX_BODY_BYTES": "1000000",
    "CLOTHO_PLUGINS__ATROPOS__MAX_UNPACKED_BYTES": "4000000",
    "CLOTHO_PLUGINS__ATROPOS__BODY_SECONDS": str(PATIENCE_SECONDS),
    "CLOTHO_PLUGINS__ATROPOS__ALLOWED_ORIGINS": '["https://dashboard.example"]',
    "TOKEN": "an open secret",
}
HASTY = {**SMALL, "CLOTHO_PLUGINS__ATROPOS__BODY_SECONDS": "15"}
"""With time for a slow machine to send the other requests before the first body is given up."""
GENEROUS_MB = 600
"""More than the process needs, and less than what it is attacked with would take."""
JSON = {"content-type": "application/json"}
PAGES: dict[str, dict[str, str]] = {
    "of another origin": {"origin": "https://evil.example"},
    "of a local file": {"origin": "null"},
    "of another port": {"origin": "http://127.0.0.1:1"},
    "in an image": {"sec-fetch-site": "cross-site"},
    "of the same site": {"sec-fetch-site": "same-site"},
    "under a name that was made to resolve here": {"host": "evil.example:8000"},
    "in an image, of a browser that doesn't tell": {"user-agent": "Mozilla/5.0 (X11; Linux x86_64)"},
}
NUMBERS = (-1, 0, 10**10, 10**40, float("nan"), float("inf"), -float("inf"), None, "many", [1])
GIGABYTE_GROUP = {"group_size": 1_000_000_000}


@pytest.fixture(scope="module")
async def limited(folder: Path) -> AsyncIterator[Api]:
    async with running(folder / "limited-api", environment=SMALL) as api:
        yield api


@pytest.fixture
async def api(limited: Api) -> Api:
    return await with_one_group(limited)


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path, environment=HASTY) as api:
        yield await with_one_group(api)


async def with_one_group(api: Api) -> Api:
    """With one group in its queue."""
    await api.http.get("/reset_data")
    await api.register(batch_size=4)
    await api.post("/scored_data", group(1))
    return api


async def assert_unharmed(api: Api) -> None:
    batch = await api.batch()
    assert batch is not None
    assert [number_of(each) for each in batch] == [1]
    assert await api.batch() is None


def peak_megabytes(api: Api) -> int:
    status = Path(f"/proc/{api.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.attack("listeners", "a small gzip body that decompresses to 700 MB")
@pytest.mark.slow
async def test_a_decompression_bomb_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    bomb = gzip.compress(b"[" + b" " * 700_000_000, 1)
    async with running(tmp_path) as api:
        await api.register()
        for path in (
            "/scored_data",
            "/scored_data_list",
            "/register",
            "/register-env",
            "/status",
            "/nothing",
        ):
            answer = await api.http.post(path, content=bomb, headers={**JSON, "content-encoding": "gzip"})
            assert answer.status_code in (404, 405, 413), (path, answer.text)
        assert peak_megabytes(api) < GENEROUS_MB


@pytest.mark.attack("listeners", "38 MB of JSON that parse to gigabytes")
@pytest.mark.parametrize("piece", [b"[],", b"{},", b"0,"])
async def test_json_that_is_small_and_parses_large_is_refused(tmp_path: Path, piece: bytes) -> None:
    body = b'{"tokens": [' + piece * (38_000_000 // len(piece)) + b"0]}"
    async with running(tmp_path) as api:
        await api.register()
        answer = await api.http.post("/scored_data", content=body, headers=JSON)
        assert answer.status_code == 413
        assert peak_megabytes(api) < GENEROUS_MB


@pytest.mark.attack(
    "listeners", "bodies larger than allowed, announced, in chunks, or compressed several times"
)
async def test_bodies_have_a_size_before_and_after_decompression(api: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 10_000

    large = b'{"a": "' + b"x" * 1_000_000 + b'"}'
    inside = b" " * 4_000_001
    for body, headers in (
        (large, {}),
        (chunks(), {}),
        (gzip.compress(inside), {"content-encoding": "gzip"}),
        (gzip.compress(inside[:3_000_000]) * 2, {"content-encoding": "gzip"}),
    ):
        answer = await api.http.post("/scored_data", content=body, headers={**JSON, **headers})
        assert answer.status_code == 413, answer.text
        assert "larger than" in answer.json()["detail"]
    fits = gzip.compress(json.dumps(group(1, group_id="again", images=["x" * 3_000_000])).encode())
    answer = await api.http.post("/scored_data", content=fits, headers={**JSON, "content-encoding": "gzip"})
    assert answer.json() == {"status": "received"}


@pytest.mark.attack("listeners", "a request sent by half, which others would wait for")
@pytest.mark.slow
async def test_a_body_that_never_ends_holds_up_nobody(hasty: Api) -> None:
    api = hasty
    lines = ["POST /scored_data", "POST /register-env", "GET /status-env", "GET /batch", "GET /reset_data"]
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(half_sent(api, line)) for line in lines]
        answers = [asyncio.create_task(reader.readuntil(b"\r\n")) for reader in readers]
        await api.post("/register-env", ENV)
        await assert_unharmed(api)
        await api.post("/scored_data", group(2))
        assert not any(answer.done() for answer in answers)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert {(await answer)[:12] for answer in answers} == {b"HTTP/1.1 408"}


@asynccontextmanager
async def half_sent(api: Api, line: str) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(f'{line} HTTP/1.1\r\n{api.head}content-length: 100\r\n\r\n{{"env'.encode())
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()


@pytest.mark.slow
@pytest.mark.attack("listeners", "connections whose headers never end")
async def test_headers_that_never_end_are_given_up(api: Api) -> None:
    async def is_closed(sent: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(sent)
        await writer.drain()
        await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
        writer.close()

    starts = (b"", b"GET /ba", f"GET /info HTTP/1.1\r\n{api.head}\r\nGET /".encode())
    await asyncio.gather(*map(is_closed, starts))


@pytest.mark.attack("listeners", "more bodies at once than fit into memory")
@pytest.mark.slow
async def test_bodies_that_wait_together_have_a_size(hasty: Api) -> None:
    api = hasty
    connections = [await asyncio.open_connection("127.0.0.1", api.port) for _ in range(6)]
    head = f"POST /scored_data HTTP/1.1\r\n{api.head}content-length: 900001\r\n\r\n".encode()
    for _, writer in connections:
        writer.write(head + b" " * 900_000)
        await writer.drain()
    answers = await asyncio.gather(*(reader.readuntil(b"\r\n") for reader, _ in connections))
    for _, writer in connections:
        writer.close()
    assert {answer.split()[1] for answer in answers} == {b"408", b"503"}
    await assert_unharmed(api)


@pytest.mark.attack("listeners", "a web page that empties the queue, reads batches or sends groups")
@pytest.mark.parametrize("page", PAGES)
async def test_requests_that_web_pages_make_are_refused(api: Api, page: str) -> None:
    for method, path, body in (
        ("GET", "/reset_data", None),
        ("GET", "/batch", None),
        ("GET", "/latest_example", None),
        ("POST", "/scored_data", group(9)),
        ("POST", "/register", TRAINER),
        ("OPTIONS", "/reset_data", None),
    ):
        answer = await api.http.request(method, path, json=body, headers=PAGES[page])
        assert answer.status_code == 403, (method, path, answer.text)
        assert not any(name.startswith("access-control") for name in answer.headers)
    await assert_unharmed(api)


async def test_pages_of_the_server_and_of_origins_that_were_named_may_ask(api: Api) -> None:
    own = {"origin": f"http://127.0.0.1:{api.port}", "sec-fetch-site": "same-origin"}
    typed = {"user-agent": "Mozilla/5.0", "sec-fetch-site": "none"}
    for headers in (own, typed, {"host": f"localhost:{api.port}"}, {"host": f"[::1]:{api.port}"}):
        answer = await api.http.get("/status", headers=headers)
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (200, False)
    named = {"origin": "https://dashboard.example", "sec-fetch-site": "cross-site"}
    answer = await api.http.get("/status", headers=named)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, named["origin"])


@pytest.mark.attack("listeners", "a request without the token, where one is asked for")
async def test_a_token_keeps_others_out(tmp_path: Path) -> None:
    arguments = ["--token-variable", "TOKEN", "--allow-host", "trainer"]
    async with Guarded(tmp_path, arguments=arguments, environment=SMALL) as api:
        basic = base64.b64encode(b"anyone:an open secret").decode()
        for wrong in (b"", b"Bearer", b"Bearer an open secre", b"Basic !", b"Bearer \xfc", b"an open secret"):
            answer = await api.http.get("/reset_data", headers=[(b"authorization", wrong)])
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        for right in ("Bearer an open secret", f"Basic {basic}"):
            for host in ("127.0.0.1", "trainer:8000"):
                answer = await api.http.get("/status", headers={"authorization": right, "host": host})
                assert answer.status_code == 200
        adapters = TrainerApi(f"http://127.0.0.1:{api.port}", "an open secret")
        assert await adapters.get("/status") == {"current_step": 0, "queue_size": 0}
        await adapters.aclose()
    assert "an open secret" not in (tmp_path / "api.log").read_text()


class Guarded(Api):
    """One that answers 401 to those who only want to know whether it is there."""

    async def answers(self) -> bool:
        return "Atropos API at" in self.process.output

    async def __aenter__(self) -> "Guarded":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()
        await self.process.kill()


@pytest.mark.attack("listeners", "registrations with sizes and weights that no one can count with")
async def test_numbers_that_would_poison_later_answers_are_refused(api: Api) -> None:
    poisons: list[tuple[str, dict[str, Any]]] = [("/register-env", {**ENV, **GIGABYTE_GROUP})]
    for number in NUMBERS:
        poisons += [("/register-env", {**ENV, name: number}) for name in ("group_size", "weight")]
        poisons += [("/register", {**TRAINER, "batch_size": number})]
    for number in (-1, 2, float("nan"), float("inf"), 10**40, "all"):
        poisons += [("/register-env", {**ENV, "min_batch_allocation": number})]
    for number in (-1, 0, 10**40, float("inf"), None):
        poisons += [("/register-env", {**ENV, "max_token_length": number})]
        poisons += [("/register", {**TRAINER, "max_token_len": number})]
    poisons += [("/register", {**TRAINER, name: 10**4_000}) for name in ("starting_step", "num_steps")]
    poisons += [("/register-env", {**ENV, "desired_name": "x" * 100_000})]
    poisons += [("/disconnect-env", {"env_id": -1}), ("/status-env", {"env_id": -1})]
    for path, body in poisons:
        method = "GET" if path == "/status-env" else "POST"
        answer = await api.http.request(method, path, content=json.dumps(body), headers=JSON)
        assert answer.status_code == 422, (path, body, answer.text)
    await api.restart()
    assert (await api.http.request("GET", "/status-env", json={"env_id": 0})).json()["env_weight"] == 1.0
    await assert_unharmed(api)


@pytest.mark.attack("listeners", "the state of an environment that was never registered, or of none")
async def test_unknown_environments_are_answered_404(api: Api) -> None:
    for number, words in ((5, "no environment 5"), (2**31 - 1, "no environment")):
        answer = await api.http.request("GET", "/status-env", json={"env_id": number})
        assert (answer.status_code, words in answer.json()["detail"]) == (404, True)
    await api.post("/disconnect-env", {"env_id": 0})
    answer = await api.http.request("GET", "/status-env", json={"env_id": 0})
    assert (answer.status_code, "was disconnected" in answer.json()["detail"]) == (404, True)
    await api.http.get("/reset_data")
    assert (await api.http.request("GET", "/status-env", json={"env_id": 0})).status_code == 404


@pytest.mark.attack("listeners", "parts of groups that never fill one, to be searched for ever")
async def test_parts_that_fill_no_group_are_bounded(api: Api) -> None:
    await api.http.get("/reset_data")
    await api.register(batch_size=4_096)
    env = (await api.post("/register-env", {**ENV, "group_size": 4_096}))["env_id"]
    parts = [
        {"tokens": [[n]] * 3, "masks": [[n]] * 3, "scores": [0.0] * 3, "env_id": env} for n in range(100)
    ]
    assert api.process.pid is not None
    before = processor_seconds(api.process.pid)
    answer = await api.http.post("/scored_data_list", json=parts)
    assert (answer.status_code, processor_seconds(api.process.pid) - before < 30) == (422, True)
    assert "too many" in answer.json()["detail"]


@pytest.mark.attack("listeners", "numbers that fit into no tensor")
@pytest.mark.parametrize("name", ["tokens", "masks", "distill_token_ids"])
async def test_integers_of_more_than_64_bits_are_refused(api: Api, name: str) -> None:
    for number in (2**63, -(2**63) - 1, 10**4_000):
        rows = [[0, number, 0]] * 4
        body = {**group(9), name: [rows] if name == "distill_token_ids" else rows}
        assert (await api.http.post("/scored_data", json=body)).status_code == 422
    await assert_unharmed(api)


@pytest.mark.attack("listeners", "messages that are no lists of messages")
async def test_messages_of_any_other_shape_are_refused(api: Api) -> None:
    message = {"role": "user", "content": "a"}
    shapes: list[Any] = [
        7,
        "x",
        {},
        {"a": "b"},
        [7],
        [None],
        [True] * 4,
        [message],
        [["role content"]],
        [[7]],
    ]
    for messages in shapes:
        answer = await api.http.post("/scored_data", json=group(9, messages=messages))
        assert (answer.status_code, "messages" in answer.text) == (422, True)
    await assert_unharmed(api)
