"""The host fails under the adapter, at a call: every group is right and arrives once, if by a later life."""

import asyncio
import errno
import itertools
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.atropos.adapter import TOKENIZER, deliveries, name_of, register_trainer
from tests.atropos.forked_lives import Forks, Life, forks
from tests.atropos_api.service import Api, running
from tests.cluster import Cluster
from tests.sandbox.injection import Site
from tests.support import ONE_FILE, eventually
from tests.workflows.scripts import scoring

ERRNOS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EACCES)
SCORES = (0.0, 1.0)
GROUPS = 2
MODES = ("process", "evaluate", "serve")
KINDS = {
    **dict.fromkeys(("_create", "_link", "_link_nameless", "_write", "_make_folder", "_flush"), "create"),
    **dict.fromkeys(("_write_temporary", "_private"), "create"),
    **dict.fromkeys(("_keys", "<genexpr>"), "keys"),
    **{"_read": "read", "__init__": "open", "_in_thread": "thread", "_unlink": "delete"},
}
OUTPUT = (
    "/atropos/group_file.py",
    "/atropos/env.py:evaluate_log",
    "/atropos/trainer_api.py",
    "/atropos/main.py",
)
AT_ONCE = 4
SHARE = 5
"""Of the calls one in so many is struck, each in a run of its own: `--fuzz-first` tells which is the first."""


@dataclass
class Host:
    """What the adapters of this file share."""

    cluster: Cluster
    forks: Forks
    model: str
    api: Api
    runs: "itertools.count[int]" = field(default_factory=itertools.count)
    received: list[dict[str, Any]] = field(default_factory=list)
    """By the trainer, of every run."""

    async def take(self, run: str) -> list[dict[str, Any]]:
        """All groups of `run` that the trainer got so far."""
        while batch := (await self.api.http.get("/batch")).json()["batch"]:
            self.received.extend(batch)
        return [group for group in self.received if name_of(group).startswith(f"{run}/")]


@pytest.fixture(scope="module")
async def host(cluster: Cluster, folder: Path) -> AsyncIterator[Host]:
    script = Script(conversations=(Conversation(variants=scoring(*map(int, SCORES)).variants),))
    lives = folder / "adapters-failing"
    lives.mkdir()
    async with (
        serving(ScriptedModel(script)) as url,
        running(folder / "api-failing") as api,
        forks(lives) as forked,
    ):
        await register_trainer(api, batch_size=len(SCORES), num_steps=10**6)
        yield Host(cluster, forked, url, api)


class Command:
    """One command of the adapter on a run of its own, over any number of lives."""

    def __init__(self, host: Host, mode: str) -> None:
        self.host, self.mode = host, mode
        self.run = f"failing-{mode}-{next(host.runs)}"
        self.folder = host.cluster.folder / self.run
        fields = {
            "run": self.run,
            "environment": ONE_FILE,
            "store": host.cluster.store_location,
            "temporal": host.cluster.address,
            "tokenizer_name": TOKENIZER,
            "group_size": len(SCORES),
            "inference": "chat",
            "accept_chat_data": True,
            "use_wandb": False,
            "rollout_server_url": f"http://127.0.0.1:{host.api.port}",
            **self._fields(),
        }
        self.argv = [
            mode,
            *(f"--env.{name}={value}" for name, value in fields.items()),
            f"--openai.base_url={host.model}",
            "--openai.model_name=scripted",
            "--openai.api_key=x",
        ]

    def _fields(self) -> dict[str, object]:
        match self.mode:
            case "process":
                return {"total_steps": GROUPS, "data_path_to_save_groups": self.folder / "groups.jsonl"}
            case "evaluate":
                return {
                    "evaluation_groups": GROUPS,
                    "evaluation_group_size": len(SCORES),
                    "data_dir_to_save_evals": self.folder,
                }
        return {"max_open_groups": GROUPS, "steps_per_eval": 10**6, "total_steps": 10**6}

    async def play(self, target: Site | None = None, number: int = 0) -> Life:
        """Live to the end with one failure, and live again if that was an early end; the first life."""
        first = life = await self._life(target, number)
        if self.mode == "serve":
            while not await self._delivered(life):
                check_end(life, number)
                life = await self._life()
            await life.terminate()
        if await life.status() != 0:
            check_end(life, number)
            if self.mode != "serve":
                life = await self._life()
                assert await life.status() == 0, life.said
        await self._check()
        return first

    async def _life(self, target: Site | None = None, number: int = 0) -> Life:
        return await self.host.forks.live(self.argv, self._variables(), target, number)

    def _variables(self) -> dict[str, str]:
        return {**self.host.cluster.host_variables, "WANDB_MODE": "offline", "WANDB_DIR": str(self.folder)}

    async def _delivered(self, life: Life) -> bool:
        """Whether the groups arrive before `life` ends."""

        async def arrived() -> bool:
            return len(await self.host.take(self.run)) >= GROUPS

        async def over() -> bool:
            return await arrived() or life.ended.done()

        await eventually(over, "groups arrive")
        return await arrived()

    async def _check(self) -> None:
        match self.mode:
            case "process":
                lines = (self.folder / "groups.jsonl").read_text().splitlines()
                groups = [json.loads(line) for line in lines]
                assert len(groups) == GROUPS
                assert (self.folder / "groups.html").read_text().count("Group 0") >= 1
            case "evaluate":
                results = json.loads((self.folder / "metrics.json").read_text())["results"]["all"]
                assert results["eval/groups"] == GROUPS and results["eval/groups_failed"] == 0
                assert results["eval/mean"] == sum(SCORES) / len(SCORES)
                lines = (self.folder / "samples.jsonl").read_text().splitlines()
                assert [json.loads(line)["scores"] for line in lines] == [[*SCORES]] * GROUPS
                return
            case _:
                groups = await self.host.take(self.run)
                assert len(set(map(name_of, groups))) >= GROUPS
                noted = await deliveries(self.host.cluster, self.run)
                assert not [entry for entry in noted.values() if entry.reason is not None]
                assert set(noted) <= set(map(name_of, groups)), "what is noted as delivered has arrived"
        assert set(Counter(map(name_of, groups)).values()) == {1}
        assert all(group["scores"] == [*SCORES] for group in groups)


def check_end(life: Life, number: int) -> None:
    """It failed, and its last line names the cause."""
    assert life.ended.result() > 0, life.said
    assert "Traceback" not in life.said, life.said
    last = life.said.splitlines()[-1]
    assert os.strerror(number) in last or "can't start new thread" in last, life.said


async def sites_of(host: Host, mode: str) -> list[Site]:
    """The calls that an undisturbed life makes."""
    return sorted((await Command(host, mode).play()).calls, key=lambda site: (site.place, site.call))


def chosen(sites: Iterable[Site]) -> list[Site]:
    """Of the store one call for each who asks and each thing asked; of the adapter's output every call.

    Elsewhere one call a place. Whichever was struck least is taken, so that every call of the store has its turn.
    """
    alike: dict[tuple[str, str], list[Site]] = {}
    for site in sites:
        inner, _, asker = site.place.partition(" < ")
        if inner.startswith("/journal/"):
            of = (asker, KINDS[inner.split(":")[1]])
        else:
            of = (inner, site.call if inner.startswith(OUTPUT) else "")
        alike.setdefault(of, []).append(site)
    struck: Counter[tuple[str, str]] = Counter()
    found = []
    for among in alike.values():
        site = min(among, key=lambda one: struck[one.call, one.place.partition(" < ")[0]])
        struck[site.call, site.place.partition(" < ")[0]] += 1
        found.append(site)
    return found


async def strike(host: Host, mode: str, site: Site, number: int) -> bool:
    """Whether the call was made, and failed."""
    try:
        return (await Command(host, mode).play(site, number)).fired
    except BaseException as error:
        error.add_note(f"{mode}: {site}, {errno.errorcode[number]}")
        raise


async def planned(host: Host) -> dict[Site, str]:
    """The calls to strike, each in the first command that makes it."""
    plan: dict[Site, str] = {}
    for mode in MODES:
        for site in chosen(await sites_of(host, mode)):
            plan.setdefault(site, mode)
    return plan


async def strike_all(host: Host, plan: dict[Site, str]) -> None:
    turns, free = itertools.cycle(ERRNOS), asyncio.Semaphore(AT_ONCE)

    async def one(site: Site, number: int) -> bool:
        async with free:
            return await strike(host, plan[site], site, number)

    results = await asyncio.gather(*(one(site, next(turns)) for site in plan), return_exceptions=True)
    if failures := [result for result in results if isinstance(result, Exception)]:
        raise ExceptionGroup("strikes", failures)
    # A life may leave out a call of the other: a thread starts where none is idle, a sweeper comes when it is time.
    assert results.count(True) > len(plan) // 3, "the calls of one life are those of another, by and large"


@pytest.mark.slow
async def test_an_error_at_a_call_of_the_adapter_loses_no_group(
    host: Host, request: pytest.FixtureRequest
) -> None:
    plan = await planned(host)
    assert len(plan) > 50
    first = request.config.getoption("--fuzz-first") % SHARE
    await strike_all(host, {site: plan[site] for site in list(plan)[first::SHARE]})
