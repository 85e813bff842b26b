"""A trainer that checks every batch and writes down what it was, before it asks for the next."""

import argparse
import asyncio
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from pydantic import JsonValue

from chaos.delivery.size import BATCH, MAX_TOKEN_LEN
from clotho import failpoints
from clotho.config import load_settings
from clotho.frozen_model import FrozenModel
from clotho.listeners.tokens import TokenAuth
from examples.trainer.api import Registration, TrainingGroup
from examples.trainer.checks import Limits, check_batch

POLL_SECONDS = 0.1
TIMEOUT = 60.0
STEPS = 1_000


class Received(FrozenModel):
    """One batch, as the trainer had it."""

    groups: tuple[tuple[str, str], ...]
    """Of each its id, and a digest of its tokens, masks, scores and logprobs."""
    faults: tuple[str, ...]
    resumed: tuple[str, ...] = ()
    """Groups with a turn that was resumed in its middle, which is sampled with other numbers from there on."""


def received(record: Path) -> Iterator[Received]:
    """Read the batches in `record`; a line that a dying trainer left unfinished is passed over."""
    if record.exists():
        for line in record.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield Received.model_validate_json(line)


@contextmanager
def one_batch(record: Path) -> Iterator[None]:
    """Held from before a batch is asked for until it is written down, and by others to keep that from beginning."""
    descriptor = os.open(record.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def answers_without_batch(record: Path) -> int:
    """How often the API had none."""
    file = record.with_suffix(".none")
    return file.stat().st_size if file.exists() else 0


async def train(api: str, record: Path) -> None:
    registration = Registration(batch_size=BATCH, max_token_len=MAX_TOKEN_LEN, num_steps=STEPS)
    async with httpx.AsyncClient(base_url=api, timeout=TIMEOUT, auth=TokenAuth()) as http:
        await asked(http, "POST", "/register", registration.model_dump())
        while True:
            await failpoints.reach("batch.asking", "")
            with one_batch(record):
                groups = await fetched(http)
                if groups:
                    await failpoints.reach("batch.taken", names(groups))
                await asyncio.to_thread(write_down, groups, record)
            if groups:
                await failpoints.reach("batch.fetched", names(groups))
            await asyncio.sleep(POLL_SECONDS)


async def fetched(http: httpx.AsyncClient) -> list[TrainingGroup]:
    """The API's next batch; empty where it has none."""
    batch = (await asked(http, "GET", "/batch"))["batch"] or []
    assert isinstance(batch, list)
    return [TrainingGroup.model_validate(group) for group in batch]


def names(groups: list[TrainingGroup]) -> str:
    return ",".join(str(group.group_id) for group in groups)


async def asked(
    http: httpx.AsyncClient, method: str, path: str, body: Mapping[str, object] | None = None
) -> dict[str, JsonValue]:
    """The answer, once there is one."""
    while True:
        try:
            answer = await http.request(method, path, json=body)
        except httpx.TransportError:
            await asyncio.sleep(POLL_SECONDS)
            continue
        content: dict[str, JsonValue] = answer.raise_for_status().json()
        return content


def write_down(groups: list[TrainingGroup], record: Path) -> None:
    if not groups:
        with record.with_suffix(".none").open("ab") as file:
            file.write(b".")
        return
    faults = check_batch(groups, Limits(BATCH, MAX_TOKEN_LEN)).faults
    line = Received(
        groups=tuple((str(group.group_id), digest(group)) for group in groups),
        faults=faults,
        resumed=tuple(str(group.group_id) for group in groups if has_resumed_turns(group)),
    )
    with record.open("a") as noted:
        noted.write(line.model_dump_json() + "\n")
        noted.flush()
        os.fsync(noted.fileno())


def digest(group: TrainingGroup) -> str:
    """Hash what is trained on. Labels of disturbances are left out: they may differ where the tokens don't."""
    content = group.model_dump_json(include={"tokens", "masks", "scores", "inference_logprobs"})
    return hashlib.sha256(content.encode()).hexdigest()


def has_resumed_turns(group: TrainingGroup) -> bool:
    resumed = (group.generation_params or {}).get("resumed_turns")
    return isinstance(resumed, list) and any(resumed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.delivery.trainer", description=__doc__)
    parser.add_argument("--api", required=True)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    settings = load_settings()
    failpoints.arm(settings.fail, settings.fail_folder)
    asyncio.run(train(options.api, options.record))


if __name__ == "__main__":
    main()
