"""verifiers' own EnvServer and EnvClient on rollouts of Clotho: `make test-verifiers`.

Not part of the suite: verifiers' dependencies contradict Clotho's. It has an environment of its own, whose
interpreter is `VERIFIERS`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from clotho.errors import GroupRejected
from clotho.models.rendering.rendering import Rendering
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.runs.adapter_runs import adapter_groups
from clotho.testing.scripted_model import serving
from clotho.training.rows import TrainingRow, training_groups
from tests.cluster import Cluster
from tests.orders.service import RolloutService, serving_rollouts
from tests.support import ONE_FILE, eventually
from tests.token_scripts import FORGETFUL, TokenScript, calling, thinking
from tests.trainers.wire import Asked, Config, Got
from tests.unit.rendering.families import make_model

ROOT = Path(__file__).parent.parent
SAID = ((thinking("small", calling("echo -n 0.5 > /work/score")), "Done."),)
"""A thought that is forgotten begins another branch."""
PATIENCE = 600.0
"""Seconds for an interpreter that imports verifiers on a busy machine."""
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "forgetful", FORGETFUL)


@pytest.fixture(scope="module")
async def url(model: Path) -> AsyncIterator[str]:
    async with serving(TokenScript(model, SAID)) as served:
        yield served


@pytest.fixture(scope="module")
async def service(cluster: Cluster) -> AsyncIterator[RolloutService]:
    async with serving_rollouts(cluster) as running:
        yield running


@dataclass
class Trainer:
    """An environment server, and what a trainer asks it for: both with verifiers' own code."""

    server: ChildProcess
    address: str
    run: str
    cluster: Cluster

    async def ask(self, url: str, *tasks: int, **sampling: Any) -> list[Got]:
        """The episodes, all of which are asked for at once."""
        async with self.asking(url, *tasks, **sampling) as client:
            said, _ = await client.communicate()
        assert client.returncode == 0, self.server.output
        return [Got.model_validate_json(line) for line in said.splitlines()]

    @asynccontextmanager
    async def asking(
        self, url: str, *tasks: int, **sampling: Any
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        asked = Asked(
            address=self.address, model="forgetful", base_url=url, tasks=list(tasks), sampling=sampling
        )
        client = await asyncio.create_subprocess_exec(
            *interpreter(),
            "-m",
            "tests.trainers.env_client",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert client.stdin is not None
        client.stdin.write(asked.model_dump_json().encode() + b"\n")
        try:
            yield client
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()

    async def groups(self) -> list[str]:
        """The groups that were ordered, in order."""
        journal = self.cluster.open_journal()
        names = {key.split("/")[1] for key in await journal.keys("~runs/")}
        runs = [name for name in names if name.startswith(f"{self.run}-")]
        return [group for run in runs for group in await adapter_groups(journal, run)]

    async def rows(self) -> dict[str, tuple[TrainingRow, ...]]:
        """The rows of each finished rollout, from the journal."""
        journal, found = self.cluster.open_journal(), {}
        for run in {group.partition("/")[0] for group in await self.groups()}:
            async for group in training_groups(journal, run):
                assert not isinstance(group, GroupRejected)
                found[group.rows[0].rollout] = group.rows
        return found


def interpreter() -> Sequence[str]:
    return ("env", f"PYTHONPATH={ROOT}:{ROOT / 'tests/trainers/plugins'}", os.environ["VERIFIERS"])


@asynccontextmanager
async def trainer_of(
    cluster: Cluster,
    service: RolloutService,
    model: Path,
    run: str,
    environment: str = ONE_FILE,
    workers: int = 1,
) -> AsyncIterator[Trainer]:
    rendering = Rendering(tokenizer=str(model), tool_call_parser="hermes").model_dump(mode="json")
    config = Config(
        api={"base_url": service.url, "api_key_var": "ROLLOUT_TOKEN"},
        run=run,
        order={
            "environment": environment,
            "environment_config": {"enabled_toolsets": ["terminal"]},
            "rendering": rendering,
        },
    )
    address = f"tcp://127.0.0.1:{free_port()}"
    command = [
        *interpreter(),
        "-m",
        "tests.trainers.env_server",
        config.model_dump_json(),
        address,
        str(workers),
    ]
    server = ChildProcess(command, cluster.folder / f"{run}.log")
    await server.start()
    try:
        yield Trainer(server, address, run, cluster)
    finally:
        await server.kill()


def same(got: Got, rows: Sequence[TrainingRow]) -> bool:
    """Whether the episode's branches are the journal's, token by token."""
    branches = [(each.ids, each.mask, each.logprobs) for each in got.branches]
    return got.reward == rows[0].reward and branches == [
        (list(row.ids), list(row.mask), list(row.logprobs)) for row in rows
    ]


async def test_branches_are_those_of_the_journal(
    cluster: Cluster, service: RolloutService, model: Path, url: str
) -> None:
    """Of 52 episodes, by two workers of one server: four of each task, as of a trainer of groups."""
    tasks = sorted([*range(13)] * 4)
    async with trainer_of(cluster, service, model, "vf-rows", workers=2) as trainer:
        episodes = await trainer.ask(url, *tasks, cache_salt="3", temperature=1.0, top_p=1.0, logprobs=True)
        rows = await trainer.rows()
    assert [each.errors for each in episodes] == [[]] * len(tasks)
    assert sorted(each.task for each in episodes) == tasks
    assert {each.rollout for each in episodes} == set(rows) and len(rows) == len(tasks)
    for each in episodes:
        assert each.ok and each.same_task
        assert (each.stopped, each.reward, len(each.branches)) == ("agent_completed", 0.5, 2)
        assert each.rollout is not None and same(each, rows[each.rollout])


async def test_a_trainer_that_is_started_again_gets_what_was_rolled_out(
    cluster: Cluster, service: RolloutService, model: Path, url: str
) -> None:
    """It is killed with its environment server, with two episodes that it was given and two under way."""
    async with trainer_of(cluster, service, model, "vf-again") as trainer:
        given = await trainer.ask(url, 1, 1, cache_salt="3")
        async with trainer.asking(NOWHERE, 1, 1, cache_salt="3"):

            async def ordered() -> bool:
                return len(await trainer.groups()) == 4

            await eventually(ordered, "two more groups", PATIENCE)
        await trainer.server.kill()
    async with trainer_of(cluster, service, model, "vf-again") as trainer:
        episodes = await trainer.ask(url, 1, 1, 1, 1, cache_salt="3")
        others = await trainer.ask(url, 1, cache_salt="4")
        groups, rows = await trainer.groups(), await trainer.rows()
    assert all(each.ok for each in (*given, *episodes, *others))
    rollouts = {each.rollout for each in episodes}
    assert len(rollouts) == 4 and {each.rollout for each in given} < rollouts
    assert {each.rollout for each in others}.isdisjoint(rollouts), "another policy has rollouts of its own"
    assert len(groups) == len(rows) == 5, "nothing was rolled out twice"
    assert all(same(each, rows[str(each.rollout)]) for each in (*given, *episodes, *others))


async def test_a_cancelled_episode_ends_its_rollout(
    cluster: Cluster, service: RolloutService, model: Path, url: str
) -> None:
    async with trainer_of(cluster, service, model, "vf-cancelled") as trainer:
        async with trainer.asking(NOWHERE, 2, cache_salt="3") as client:

            async def begun() -> bool:
                return len(await trainer.groups()) == 1

            await eventually(begun, "the group is ordered", PATIENCE)
            assert client.stdin is not None
            client.stdin.write(b"cancel\n")
            said, _ = await client.communicate()
            assert (said, client.returncode) == (b"", 0)
        (group,) = await trainer.groups()
        workflow = cluster.client.get_workflow_handle(group)

        async def ended() -> bool:
            return (await workflow.describe()).status is WorkflowExecutionStatus.CANCELED

        await eventually(ended, "the group's workflow has ended", PATIENCE)
        (after,) = await trainer.ask(url, 2, cache_salt="3")
    assert after.ok and after.rollout is not None and not after.rollout.startswith(group)


async def test_a_rollout_without_a_reward_is_no_episode(
    cluster: Cluster, service: RolloutService, model: Path, url: str
) -> None:
    environment = "tests.environments.failing_verifiers:Raises"
    async with trainer_of(cluster, service, model, "vf-failed", environment) as trainer:
        (failed,) = await trainer.ask(url, 5)
        (reshaped,) = await trainer.ask(url, 5, top_p=0.5)
    assert (failed.ok, failed.branches, failed.same_task) == (False, [], True)
    assert "environment_failed: " in failed.errors[0] and "the author's mistake" in failed.errors[0]
    assert not reshaped.ok and "sampling has top_p 0.5" in reshaped.errors[0]
