"""Who doesn't know of ids can't tell ours from atroposlib's own API: the same requests, the same answers."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import httpx

from tests.atropos_api.service import ENV, TRAINER, Api, group, running

Call = tuple[str, str, Any]


def nameless(number: int, rows: int = 4, **changes: object) -> dict[str, object]:
    made = group(number, rows, **changes)
    del made["group_id"]
    return made


def story() -> list[Call]:
    """Every endpoint, before, during and after a training."""
    second = {**ENV, "desired_name": "other", "group_size": 2, "min_batch_allocation": 0.25}
    before: list[Call] = [
        ("GET", path, None) for path in ("/", "/info", "/wandb_info", "/status", "/batch", "/latest_example")
    ]
    registering: list[Call] = [
        ("POST", "/register-env", ENV),
        ("POST", "/register", {**TRAINER, "batch_size": "many"}),
        ("POST", "/register", TRAINER),
        ("POST", "/register-env", ENV),
        ("GET", "/batch", None),
        ("POST", "/register-env", ENV),
        ("POST", "/register-env", second),
        ("POST", "/register-env", ENV),
        ("POST", "/disconnect-env", {"env_id": 2}),
        ("POST", "/disconnect-env", {"env_id": 9}),
        ("GET", "/info", None),
        ("GET", "/wandb_info", None),
    ]
    sending: list[Call] = [
        ("POST", "/scored_data", nameless(1, env_id=0)),
        ("POST", "/scored_data", nameless(2, rows=2, env_id=0)),
        ("POST", "/scored_data_list", [nameless(3, env_id=0), nameless(4, rows=2, env_id=0)]),
        ("GET", "/status-env", {"env_id": 0}),
        ("GET", "/batch", None),
        ("POST", "/scored_data_list", [nameless(n, rows=2, env_id=1) for n in range(5, 12)]),
        ("POST", "/scored_data", nameless(12, messages=[[{"role": "user", "content": "ü"}]] * 4)),
        ("POST", "/scored_data", nameless(13, messages=[[{"role": "user"}]] * 4)),
        ("POST", "/scored_data", nameless(14, generation_params={"temperature": 1.0}, overrides=[{}] * 4)),
        ("POST", "/scored_data", nameless(15, env_id=7)),
        ("POST", "/scored_data", nameless(16, advantages=[[0.5] * 3] * 4, ref_logprobs=[[-1.0] * 3] * 4)),
        ("POST", "/scored_data", {"tokens": [[1]], "masks": [[1]]}),
        ("GET", "/status-env", {"env_id": 1}),
        ("GET", "/latest_example", None),
    ]
    fetching: list[Call] = [("GET", path, None) for path in ("/batch", "/status") * 7]
    ending: list[Call] = [
        ("GET", "/reset_data", None),
        ("GET", "/reset_data", None),
        # Stock fails when it is asked for a batch here.
        *(call for call in before if call[1] != "/batch"),
        ("POST", "/register-env", ENV),
        ("POST", "/register", {**TRAINER, "batch_size": 4}),
        ("POST", "/register", TRAINER),
        ("GET", "/info", None),
        ("GET", "/nothing", None),
        ("PUT", "/scored_data", None),
    ]
    return [*before, *registering, *sending, *fetching, *ending]


async def told(api: Api) -> list[tuple[str, str, int, Any]]:
    answers = []
    for method, path, body in story():
        # Stock drops the connection behind an answer of 500.
        answer = await api.http.request(method, path, json=body, headers={"connection": "close"})
        answers.append((method, path, answer.status_code, seen(answer)))
    return answers


def seen(answer: httpx.Response) -> Any:
    if answer.status_code == 422:
        # Where the fault is; the words are pydantic's, with or without what was sent.
        return sorted({tuple(map(str, each["loc"]))[:2] for each in answer.json()["detail"]})
    if not answer.headers["content-type"].startswith("application/json"):
        return answer.text
    content = answer.json()
    return {**content, "uuid": "any"} if "uuid" in content else content


async def test_the_same_requests_get_the_same_answers(api: Api, tmp_path: Path) -> None:
    async with running(tmp_path / "stock", stock=True) as stock, running(tmp_path / "ours") as ours:
        expected, found = await asyncio.gather(told(stock), told(ours))
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert other == one, f"request {number}"
    batches = [
        answer for _, path, status, answer in found if (path, status) == ("/batch", 200) and answer["batch"]
    ]
    assert len(batches) >= 3


async def test_gzip_is_taken_and_given(api: Api) -> None:
    await api.register(batch_size=4)
    body = gzip.compress(json.dumps(nameless(1, images=["x" * 2_000])).encode())
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answer = await api.http.post("/scored_data", content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"status": "received"})
    given = await api.http.get("/batch", headers={"accept-encoding": "gzip"})
    assert given.headers["content-encoding"] == "gzip"
    assert given.json()["batch"][0]["images"] == ["x" * 2_000]
