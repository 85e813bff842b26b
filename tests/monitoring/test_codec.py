"""The codec server, asked for the payloads of recorded runs as the Temporal UI asks."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory

from clotho.identifiers.keys import call_key, prompt_key, reward_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.listeners.access import Access
from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.plugins.codec.references import SHOWN, Codec
from clotho.plugins.codec.server import CodecServer
from clotho.rollouts.call import CallEntry, CallRequest
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry, TurnRequest
from clotho.rollouts.verification import RewardEntry
from clotho.runs.items import write_items
from tests.record_histories import HISTORIES
from tests.support import PATIENCE_SECONDS

UI = "http://127.0.0.1:8233"
ROLLOUT = "plain/g000000/r0"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,x-namespace",
}


def client(journal: Journal, host: str = "127.0.0.1:8235") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(CodecServer(Codec(journal), Access(origins=(UI,))))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}", timeout=PATIENCE_SECONDS)


def asked(*payloads: Any) -> dict[str, Any]:
    return {"payloads": list(payloads)}


def as_json(value: Any) -> dict[str, Any]:
    encoding = b64encode(b"json/plain").decode()
    return {"metadata": {"encoding": encoding}, "data": b64encode(json.dumps(value).encode()).decode()}


def value_of(payload: dict[str, Any]) -> Any:
    return json.loads(b64decode(payload["data"]))


def payloads_in(message: Any) -> Iterator[Payload]:
    """The payloads anywhere in a message of Temporal's."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else [value]:
            if isinstance(each, Payload):
                yield each
            else:
                yield from payloads_in(each)


def recorded(workflow: str) -> list[dict[str, Any]]:
    """The payloads of a recorded history, as the UI has them."""
    text = (HISTORIES / f"{workflow.replace('/', '~')}.json").read_text()
    events = WorkflowHistory.from_json(workflow, text).events
    return [MessageToDict(each) for event in events for each in payloads_in(event)]


def sampled(content: str, *calls: ToolCall) -> TurnEntry:
    message = ChatMessage(role="assistant", content=content, reasoning_content="Hm.", tool_calls=calls)
    turn = SampledTurn(
        message=message,
        finish_reason="stop",
        usage=Usage(),
        model="scripted",
        sampling=Sampling(),
        started=0.0,
        seconds=0.1,
    )
    return TurnEntry(sampled=turn)


async def write_rollout(journal: Journal) -> None:
    """What the store has of the rollout ROLLOUT: two turns with a call, and its reward."""
    call = ToolCall(id="1", function=FunctionCall(name="terminal", arguments='{"command": "ls"}'))
    result = CallEntry(
        tool="terminal",
        content="score",
        error=None,
        state={},
        lease=0,
        started=0.0,
        seconds=0.25,
        changes=True,
    )
    prompt = Prompt(item={"number": 0}, messages=(ChatMessage(role="user", content="task 0"),), seed=0)
    reward = RewardEntry(score=0.5, breakdown={"score": 0.5}, log="2 turns", lease=None, epoch=0, seconds=0.1)
    await write_items(journal, "plain", [{"number": 0}])
    await journal.write(prompt_key(ROLLOUT), prompt)
    await journal.write(turn_key(ROLLOUT, 0), sampled("I look.", call))
    await journal.write(turn_key(ROLLOUT, 1), sampled("Done."))
    await journal.write(call_key(ROLLOUT, "0000-00"), result)
    await journal.write(reward_key(ROLLOUT), reward)


@pytest.mark.parametrize("sealed", [False, True])
async def test_payloads_of_histories_come_with_what_they_refer_to(empty: Journal, sealed: bool) -> None:
    await write_rollout(empty)
    if sealed:
        await empty.seal(ROLLOUT)
    given = [*recorded("plain/g000000"), *recorded(ROLLOUT)]
    async with client(empty) as ui:
        headers = {"origin": UI, "x-namespace": "default"}
        answer = await ui.post("/decode", json=asked(*given), headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["access-control-allow-origin"] == UI
    decoded = answer.json()["payloads"]
    assert [each["metadata"] for each in decoded] == [each["metadata"] for each in given]
    values = [(value_of(before), value_of(after)) for before, after in zip(given, decoded, strict=True)]
    shown = [after.pop(SHOWN) for _, after in values if isinstance(after, dict) and SHOWN in after]
    assert [before for before, _ in values] == [after for _, after in values]
    call = {"tool": "terminal", "arguments": '{"command": "ls"}', "result": "score", "seconds": 0.25}
    for expected in (
        {"item": {"number": 0}},
        {"prompt": [{"role": "user", "content": "task 0"}]},
        {"reasoning": "Hm.", "content": "I look.", "tool calls": [call], "finish reason": "stop"},
        {"score": 0.5, "breakdown": {"score": 0.5}, "log": "2 turns", "error": None},
        {"prompt": "not in the store yet"},  # of its sibling
    ):
        assert expected in shown


async def test_a_call_comes_with_its_arguments_and_result(empty: Journal) -> None:
    await write_rollout(empty)
    call = CallRequest(rollout=ROLLOUT, turn=0, index=0, lease=0, tool_state={})
    async with client(empty) as ui:
        answer = await ui.post("/decode", json=asked(as_json(call.model_dump())))
    [decoded] = answer.json()["payloads"]
    shown = {"tool": "terminal", "arguments": '{"command": "ls"}', "result": "score", "seconds": 0.25}
    assert value_of(decoded)[SHOWN] == shown


@pytest.fixture
def empty(tmp_path: Any) -> Journal:
    return Journal(FilesystemStore(tmp_path))


async def test_what_is_no_reference_stays_as_it_is(empty: Journal) -> None:
    given = (
        as_json({"run": "first"}),
        as_json([1]),
        {"metadata": {"encoding": b64encode(b"binary/null").decode()}},
        {"metadata": {"encoding": "!"}, "data": "?"},
        {"data": b64encode(b"\xff").decode()},
    )
    async with client(empty) as ui:
        answer = (await ui.post("/decode", json=asked(*given))).json()["payloads"]
    assert [each["data"] for each in answer] == [each.get("data", "") for each in given]


async def test_what_is_not_there_yet_and_what_is_damaged_is_said(empty: Journal, tmp_path: Any) -> None:
    turn = as_json(TurnRequest(rollout="r/g000000/r0", turn=0).model_dump())
    damaged = TurnRequest(rollout="r/g000000/r1", turn=0)
    file = tmp_path / turn_key(damaged.rollout, 0)
    await asyncio.to_thread(file.parent.mkdir, parents=True)
    await asyncio.to_thread(file.write_bytes, b"damaged")
    async with client(empty) as ui:
        answer = await ui.post("/decode", json=asked(turn, as_json(damaged.model_dump())))
    missing, unreadable = (value_of(each)[SHOWN] for each in answer.json()["payloads"])
    assert missing == {"turn": "not in the store yet"}
    assert unreadable == {"error": f"journal entry {turn_key(damaged.rollout, 0)} has no readable header"}


@pytest.mark.parametrize(
    ("headers", "host"),
    [
        ({"origin": "http://evil.example"}, "127.0.0.1:8235"),
        ({"origin": "http://127.0.0.1:9999"}, "127.0.0.1:8235"),
        ({"origin": "null"}, "127.0.0.1:8235"),
        ({"sec-fetch-site": "cross-site"}, "127.0.0.1:8235"),
        ({}, "rebound.example"),
    ],
)
async def test_only_pages_of_the_ui_may_ask(empty: Journal, headers: dict[str, str], host: str) -> None:
    async with client(empty, host) as page:
        refused = await page.post("/decode", json=asked(), headers=headers)
        preflight = await page.options("/decode", headers={**headers, **PREFLIGHT})
    assert (refused.status_code, preflight.status_code) == (403, 403)
    assert "access-control-allow-origin" not in refused.headers.keys() | preflight.headers.keys()


async def test_the_ui_may_ask(empty: Journal) -> None:
    async with client(empty) as page:
        preflight = await page.options("/decode", headers={"origin": UI, **PREFLIGHT})
        nothing = await page.post("/decode", content=b"[]", headers={"origin": UI})
        elsewhere = await page.post("/encode", json=asked(), headers={"origin": UI})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == UI
    assert (nothing.status_code, elsewhere.status_code) == (400, 404)


@pytest.mark.attack("listeners", "a request without the token, where one is asked for")
async def test_a_token_is_part_of_the_address(empty: Journal) -> None:
    """The UI has no other way to send one: it takes an address, and leaves its preflights without headers."""
    server = CodecServer(Codec(empty), Access(origins=(UI,), token="t-o_k"))
    transport = httpx.ASGITransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8235") as page:
        for path in ("/decode", "/t-o_/decode", "/x/t-o_k/decode"):
            for headers in ({}, {"origin": UI}):
                assert (await page.post(path, json=asked(), headers=headers)).status_code == 401, path
            assert (await page.options(path, headers={"origin": UI, **PREFLIGHT})).status_code == 401
        preflight = await page.options("/t-o_k/decode", headers={"origin": UI, **PREFLIGHT})
        assert preflight.headers["access-control-allow-origin"] == UI
        decoded = await page.post("/t-o_k/decode", json=asked(), headers={"origin": UI})
        command_line = await page.post("/decode", json=asked(), headers={"authorization": "Bearer t-o_k"})
        elsewhere = await page.post("/t-o_k/decode", json=asked(), headers={"origin": "http://evil.example"})
    assert (decoded.status_code, command_line.status_code, elsewhere.status_code) == (200, 200, 403)
