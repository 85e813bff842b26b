"""What is refused changes nothing: batches are served to all others."""

import asyncio
import gzip
import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clotho.errors import InvalidInput
from clotho.plugins.atropos.api.queue import Queue
from tests.atropos_api.service import TRAINER, Api, group, number_of
from tests.cli.command import clotho
from tests.support import PATIENCE_SECONDS

Changes = dict[str, Any]
PIECE = bytes(64 * 1024)
ILL_SHAPED: dict[str, tuple[Changes, str]] = {
    "no rows": ({"tokens": [], "masks": [], "scores": [], "inference_logprobs": None}, "no rows"),
    "too few masks": ({"masks": [[1, 1, 1]]}, "masks has 1 rows, tokens has 4"),
    "a short mask": ({"masks": [[1]] * 4}, "masks[0] has 1 numbers for 3 tokens"),
    "too few scores": ({"scores": [1.0]}, "scores has 1 rows"),
    "too many logprobs": ({"inference_logprobs": [[0.0] * 3] * 5}, "inference_logprobs has 5 rows"),
    "a long logprob row": ({"inference_logprobs": [[0.0] * 4] * 4}, "has 4 numbers for 3 tokens"),
    "short reference logprobs": ({"ref_logprobs": [[0.0]] * 4}, "ref_logprobs[0] has 1 numbers"),
    "too few advantages": ({"advantages": [[0.0] * 3]}, "advantages has 1 rows"),
    "tokens that are text": ({"tokens": [["one"]] * 4}, "valid integer"),
    "an environment before the first": ({"env_id": -1}, "greater than or equal to 0"),
    "no id at all": ({"group_id": ""}, "at least 1 character"),
    "an id that is long": ({"group_id": "x" * 513}, "at most 512 characters"),
    "an id that is a number": ({"group_id": 7}, "valid string"),
    "more rows than the group size": (group(1, rows=5, env_id=0), "its environment's group size, 4"),
    "more rows than a batch": (group(1, rows=9), "larger than a batch, 8"),
}
NOT_FINITE: dict[str, Changes] = {
    "score": {"scores": [0.0, 1.0, float("nan"), 0.0]},
    "logprob": {"inference_logprobs": [[1.0, float("-inf"), -0.5]] * 4},
    "reference logprob": {"ref_logprobs": [[float("inf")] * 3] * 4},
    "advantage": {"advantages": [[float("nan")] * 3] * 4},
    "parameter": {"generation_params": {"temperature": float("inf")}},
    "override": {"overrides": [{"deep": [{"er": float("nan")}]}] * 4},
    "message": {"messages": [[{"role": "user", "content": "a", "reward": float("nan")}]] * 4},
    "distilled": {"distill_logprobs": [[[float("-inf")]]] * 4},
}


async def assert_unharmed(api: Api) -> None:
    """One group is waiting from before; another completes the batch."""
    await api.post("/scored_data", group(2))
    batch = await api.batch()
    assert batch is not None
    assert [number_of(each) for each in batch] == [1, 2]


@pytest.mark.parametrize("fault", ILL_SHAPED)
async def test_a_group_without_one_shape_is_refused(api: Api, fault: str) -> None:
    changes, words = ILL_SHAPED[fault]
    await api.register()
    await api.post("/scored_data", group(1))
    bad = {**group(9), **changes}
    refused = await api.post("/scored_data", bad, 422)
    assert words in json.dumps(refused["detail"])
    # A list is refused whole.
    await api.post("/scored_data_list", [group(3), bad], 422)
    await assert_unharmed(api)


@pytest.mark.parametrize("where", NOT_FINITE)
async def test_numbers_that_no_batch_could_show_are_refused(api: Api, where: str) -> None:
    await api.register()
    await api.post("/scored_data", group(1))
    body = json.dumps(group(9, **NOT_FINITE[where]))
    for text in (body, body.replace("NaN", "1e999").replace("Infinity", "1e999")):
        answer = await api.http.post(
            "/scored_data", content=text, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422, answer.text
    await assert_unharmed(api)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"", ""),
        (b"{", ""),
        (b"\xff\xfe{\x00", ""),
        (b'"\\ud800"', ""),
        (b"[" * 100_000, ""),
        (b"not gzip", "gzip"),
        (gzip.compress(b"{}")[:-4], "gzip"),
        (gzip.compress(b"{}")[:12] + b"\xff\xff\xff", "gzip"),
    ],
    ids=["empty", "torn", "utf-16", "half a character", "deep", "not gzip", "gzip torn", "gzip damaged"],
)
async def test_bodies_that_are_no_json_are_refused(api: Api, body: bytes, encoding: str) -> None:
    await api.register()
    await api.post("/scored_data", group(1))
    headers = {"content-type": "application/json", **({"content-encoding": encoding} if encoding else {})}
    answer = await api.http.post("/scored_data", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    await assert_unharmed(api)


async def test_half_a_character_in_a_message_is_refused(api: Api) -> None:
    await api.register()
    await api.post("/scored_data", group(1))
    body = json.dumps(group(9, messages=[[{"role": "user", "content": "\ud83d"}]] * 4))
    answer = await api.http.post("/scored_data", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    await assert_unharmed(api)


async def test_groups_that_come_before_a_trainer_are_to_be_sent_again(api: Api) -> None:
    answer = await api.http.post("/scored_data", json=group(1))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    await api.register()
    assert await api.get("/info") == {"batch_size": 8, "max_token_len": TRAINER["max_token_len"]}
    await api.post("/scored_data", group(1))
    await assert_unharmed(api)


async def test_the_queue_has_one_process(api: Api) -> None:
    refused = await clotho("atropos-api", "--port", "0", "--queue", api.queue)
    assert (refused.status, "another process has it open" in refused.complaint) == (1, True)
    refused = await clotho("atropos-api", "--port", str(api.port), "--queue", str(api.queue) + "-2")
    assert "Address already in use" in refused.complaint


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    foreign, damaged, older, empty = (
        tmp_path / name for name in ("foreign", "damaged", "older", "deep/empty")
    )
    Queue(older).close()
    with closing(sqlite3.connect(older)) as connection:
        connection.execute("PRAGMA user_version = 1")
    with sqlite3.connect(foreign) as theirs:
        theirs.execute("CREATE TABLE theirs (one INTEGER)")
    damaged.write_bytes(b"SQLite format 3\0" + b"?" * 5_000)
    for path, words in (
        (foreign, "another program"),
        (damaged, "not a database"),
        (older, "another version of Clotho wrote it"),
        (tmp_path, "unable to open"),
    ):
        with pytest.raises(InvalidInput, match=words):
            Queue(path)
    Queue(empty).close()
    Queue(empty).close()


async def test_a_client_that_still_sends_reads_why_it_is_refused(api: Api) -> None:
    """A connection that is closed with unread bytes is reset, which takes the answer with it."""
    head = (
        f"POST //scored_data HTTP/1.1\r\n{api.head}content-length: {64 * len(PIECE)}\r\n"
        "connection: close\r\n\r\n"
    )

    def send_in_pieces() -> bytes:
        with socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(head.encode())
            for _ in range(64):
                connection.sendall(PIECE)
            return connection.recv(1024)

    assert (await asyncio.to_thread(send_in_pieces)).startswith(b"HTTP/1.1 404 ")
