"""Authors' code in processes of its own: its failures are told from the host's, and end with it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue

from clotho.environment.handles import EnvironmentHandle, infrastructure_wait
from clotho.environment.instances import EnvironmentProcesses
from clotho.environment.pool import ProcessBounds
from clotho.errors import EnvironmentFailed, EnvironmentUnknown, HostUnavailable, InvalidInput, SandboxLost
from clotho.rollouts.run import RunManifest
from clotho.runs.request import run_manifest
from tests.environments.calls import RESULT, Calls, is_running, until

MISBEHAVING = "tests.environments.misbehaving:Misbehaving"
SMALL = ProcessBounds(processes=2, memory_bytes=400 << 20)
LONG = 600.0


def manifest(environment: str = MISBEHAVING, **config: JsonValue) -> RunManifest:
    return run_manifest(environment, "processes", "model", overrides=config)


@asynccontextmanager
async def served(bounds: ProcessBounds = SMALL, **config: JsonValue) -> AsyncIterator[EnvironmentHandle]:
    async with EnvironmentProcesses(bounds=bounds) as environments:
        yield await environments.get(manifest(MISBEHAVING, **config))


@pytest.fixture(scope="module")
async def environment() -> AsyncIterator[EnvironmentHandle]:
    async with served() as handle:
        yield handle


async def score(environment: EnvironmentHandle, does: str, seconds: float = LONG, **more: object) -> float:
    item = {"does": does, **more}
    calls = Calls(environment)
    return (await environment.compute_reward(item, RESULT, calls, seconds)).score  # type: ignore[arg-type]


async def pid(environment: EnvironmentHandle) -> int:
    prompt = (await environment.opening({})).prompt
    assert isinstance(prompt, str)
    return int(prompt.removeprefix("pid "))


async def test_a_verifier_works_in_a_warm_process_with_what_the_worker_gives_it(
    environment: EnvironmentHandle,
) -> None:
    first = await pid(environment)
    assert first != os.getpid()
    assert await score(environment, "asks") == 1.0, "hidden files come from the process that asks for them"
    assert await pid(environment) == first


@pytest.mark.parametrize("does", ["hangs", "hangs in C"])
async def test_a_verifier_that_hangs_is_ended_at_its_bound(environment: EnvironmentHandle, does: str) -> None:
    first = await pid(environment)
    with pytest.raises(EnvironmentFailed, match=r"compute_reward took longer than 0\.3 s"):
        await score(environment, does, seconds=0.3)
    await until(lambda: not is_running(first), "the process ended")
    assert await pid(environment) != first


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("segfaults", "ended by SIGSEGV"),
        ("exits", "SystemExit: 3"),
        ("ends", "ended with status 0"),
        ("allocates", r"took \d+ MiB of memory, over 400"),
        ("runs out of memory", "MemoryError"),
        ("raises EIO", "Input/output error"),
        ("opens", "Too many open files"),
        ("returns", "return a number or a Reward"),
    ],
)
async def test_crashing_and_exhausting_are_the_authors_failures(
    environment: EnvironmentHandle, does: str, said: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=said):
        await score(environment, does)
    assert await score(environment, "asks") == 1.0, "another process serves what follows"


async def test_a_kill_from_outside_is_the_hosts_failure(environment: EnvironmentHandle) -> None:
    with pytest.raises(HostUnavailable, match="SIGKILL"):
        await score(environment, "is killed")
    assert await score(environment, "asks") == 1.0


async def test_a_process_that_leaks_is_replaced(environment: EnvironmentHandle) -> None:
    first = await pid(environment)
    for _ in range(3):
        await score(environment, "leaks")
    assert await pid(environment) != first and not is_running(first)


async def test_a_cancel_ends_the_process_and_what_it_started(environment: EnvironmentHandle) -> None:
    calls = Calls(environment)
    first = await pid(environment)
    scoring = asyncio.create_task(environment.compute_reward({"does": "leaves a child"}, RESULT, calls, LONG))
    await until(lambda: "/work/child" in calls.files, "the child runs")
    child = int(calls.files["/work/child"])
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    await until(lambda: not is_running(first) and not is_running(child), "both have ended")


async def test_a_forked_child_does_not_hide_a_crash(environment: EnvironmentHandle) -> None:
    calls = Calls(environment)
    with pytest.raises(EnvironmentFailed, match="ended by SIGSEGV"):
        await environment.compute_reward({"does": "forks"}, RESULT, calls, LONG)
    child = int(calls.files["/work/child"])
    await until(lambda: not is_running(child), "the child has ended")


async def test_memory_that_forked_processes_share_counts_once(environment: EnvironmentHandle) -> None:
    assert await score(environment, "shares memory") > 0


async def test_a_process_that_is_replaced_keeps_its_place(tmp_path: Path) -> None:
    alone = manifest("tests.environments.misbehaving:Alone", lock=str(tmp_path / "lock"))
    async with EnvironmentProcesses(bounds=SMALL) as environments:

        async def first_item() -> int:
            async with environments.enumeration(alone) as environment:
                [item] = await environment.next_items(1)
                return int(item["number"])  # type: ignore[arg-type]

        assert await first_item() == 1
        environment = await environments.get(alone)
        asked = (score(environment, "sleeps", pause=0.1) for _ in range(3))
        first, *_ = await asyncio.gather(first_item(), *asked)
        assert first == 1, "an enumeration begins with a process of which nobody has drawn"


async def test_who_waits_for_a_process_is_told_when_all_end() -> None:
    async with EnvironmentProcesses(bounds=SMALL) as environments:
        environment = await environments.get(manifest("tests.environments.misbehaving:Single"))
        calls = Calls(environment)
        hanging = asyncio.create_task(
            environment.compute_reward({"does": "leaves a child"}, RESULT, calls, LONG)
        )
        await until(lambda: "/work/child" in calls.files, "the first call is under way")
        waiting = asyncio.create_task(score(environment, "asks"))
        await asyncio.sleep(0)
    with pytest.raises(EnvironmentFailed, match="its worker stops"):
        await hanging
    with pytest.raises(HostUnavailable, match="have ended"):
        await waiting


async def test_a_failure_of_the_context_keeps_its_kind(environment: EnvironmentHandle) -> None:
    with pytest.raises(SandboxLost, match="the sandbox is gone") as lost:
        await environment.compute_reward({"does": "asks"}, RESULT, Lost(), LONG)
    assert lost.value.exhausted == "memory"


class Lost(Calls):
    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None:
        raise SandboxLost("the sandbox is gone", "memory")


async def test_a_larger_limit_of_the_item_wins(environment: EnvironmentHandle) -> None:
    assert await score(environment, "sleeps", 0.2, pause=0.6, asks=LONG) > 0


class Slow(Calls):
    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None:
        with infrastructure_wait():
            await asyncio.sleep(0.7)
        return await super().read_bytes(path, max_bytes)


async def test_waits_for_infrastructure_do_not_count(environment: EnvironmentHandle) -> None:
    reward = await environment.compute_reward({"does": "asks"}, RESULT, Slow(environment), 0.6)
    assert reward.score == 1.0


async def test_waiting_for_a_process_takes_no_time_of_a_verifier() -> None:
    async with served(ProcessBounds(processes=1)) as environment:
        scores = await asyncio.gather(*(score(environment, "sleeps", 0.6, pause=0.4) for _ in range(3)))
    assert len(scores) == 3


async def test_a_process_gets_the_variables_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOTHO_TEST_SECRET", "secret")
    async with served() as environment:
        assert await score(environment, "environment") == 1.0
    async with served(variables=["CLOTHO_TEST_SECRET"]) as environment:
        with pytest.raises(EnvironmentFailed, match="never"):
            await score(environment, "environment")


async def test_a_coroutine_finds_the_event_loop_of_the_last() -> None:
    async with EnvironmentProcesses(bounds=SMALL) as environments:
        environment = await environments.get(manifest("tests.environments.misbehaving:OnOneLoop"))
        scores = await asyncio.gather(*(score(environment, "") for _ in range(3)))
    assert scores == [1.0] * 3, "one process, one loop"


async def test_an_enumeration_has_one_process_from_its_first_item_to_its_last() -> None:
    async with EnvironmentProcesses(bounds=SMALL) as environments:
        for _ in range(2):  # the second begins anew
            async with environments.enumeration(manifest()) as environment:
                drawn = [await environment.next_items(2) for _ in range(4)]
            numbers = [[item["number"] for item in items] for items in drawn]
            assert numbers == [[1, 2], [3, 4], [5], []]


async def test_processes_end_with_their_worker() -> None:
    program = (
        "import asyncio\n"
        "from tests.environments.test_processes import *\n"
        "async def main():\n"
        "    environments = EnvironmentProcesses(bounds=SMALL)\n"
        "    environment = await environments.get(manifest())\n"
        "    print(await pid(environment), flush=True)\n"
        "    await score(environment, 'hangs')\n"
        "asyncio.run(main())\n"
    )
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    process = int(await worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    await until(lambda: not is_running(process), "the process ended")


@pytest.mark.parametrize(
    ("environment", "error"),
    [
        ("tests.environments.nowhere:None", EnvironmentUnknown),
        ("tests.environments.misbehaving:Nobody", EnvironmentUnknown),
        ("tests.environments.failing_setup:Refuses", InvalidInput),
        ("tests.environments.failing_setup:Raises", EnvironmentFailed),
        ("tests.environments.failing_setup:Ends", EnvironmentFailed),
    ],
)
async def test_an_environment_that_cannot_be_made_says_why(environment: str, error: type[Exception]) -> None:
    order = manifest().model_copy(update={"environment": environment})
    async with EnvironmentProcesses(bounds=SMALL) as environments:
        with pytest.raises(error):
            await environments.get(order)
