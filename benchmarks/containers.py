"""Costs of a sandbox in a container beside a local one, in one run: its life, and a command in it.

python -m benchmarks.containers
"""

import asyncio
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import docker

from benchmarks.commands import run_in_sandbox, sandbox_root
from benchmarks.table import Row
from clotho.config import SandboxSettings, variable
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.folders import members
from clotho.sandbox.backend import SandboxBackend, SandboxSpec
from clotho.sandbox.registry import open_backend
from tests.containers import NoEngine, container_engine
from tests.machine_image import IMAGE, machine_image
from tests.support import eventually

LIVES, COMMANDS, WARM_UP, TURNS, AT_ONCE = 10, 200, 3, 3, 100
AIM_MS, AIM_LIFE_MS = 6, 250
LOCAL = SandboxSpec(disk_mb=64)
CONTAINER = SandboxSpec(backend=DockerConfig(image=IMAGE), disk_mb=64)


async def measure() -> list[Row]:
    with sandbox_root() as root, ExitStack() as stack:
        try:
            stack.enter_context(container_engine(root / "engine"))
        except NoEngine as reason:
            return [Row("a sandbox in a container", f"not run here: {reason}")]
        machine_image()
        settings = SandboxSettings(docker_host=variable("DOCKER_HOST"))
        backend = open_backend(settings, root / "sandboxes")
        local = await _lives(backend, "local", LOCAL)
        cold = await _lives(backend, "container", CONTAINER)
        ahead = await _lives_of_a_pool(settings, root / "pool")
        commands = {
            kind: await _commands(backend, kind, spec)
            for kind, spec in {"local": LOCAL, "container": CONTAINER}.items()
        }
        at_once = await _at_once(backend, root / "sandboxes")
    life = f"a sandbox's life: made, {TURNS} commands, verified, destroyed"
    return [
        Row(f"{life}; local", f"{local:.0f} ms"),
        Row("… in a container", f"{cold:.0f} ms, {cold - local:.0f} ms more"),
        Row(
            "… in a container of the warm pool",
            f"{ahead:.0f} ms, {ahead - local:.0f} ms more",
            f"≤ {AIM_LIFE_MS} ms more",
        ),
        Row(
            "true in a container that is warm",
            f"{commands['container']:.1f} ms, local {commands['local']:.1f} ms (medians of {COMMANDS})",
            f"≤ {AIM_MS} ms",
        ),
        at_once,
    ]


async def _lives(backend: SandboxBackend, kind: str, spec: SandboxSpec, pool: Path | None = None) -> float:
    """The median of `LIVES`, in milliseconds, each begun while a container is ready in `pool`."""

    async def ready() -> bool:
        return pool is None or any(members(pool))

    spent = []
    for number in range(WARM_UP + LIVES):
        if number:
            await eventually(ready, "a container made ahead")
        begun, lease = time.perf_counter(), f"{kind}/{number}/lease/0"
        run = run_in_sandbox(await backend.create(lease, spec), lease)
        for turn in range(TURNS):
            await run(turn)
        await run_in_sandbox(await backend.open_verifier(lease, 0, {}), "verifier")(0)
        await backend.destroy(lease)
        spent.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(spent[WARM_UP:])


async def _lives_of_a_pool(settings: SandboxSettings, folder: Path) -> float:
    """Lives that begin while another container is ready, as between the rollouts of a run."""
    backend = open_backend(settings.model_copy(update={"warm": 1}), folder)
    try:
        return await _lives(backend, "pooled", CONTAINER, folder / "containers")
    finally:
        await backend.close()


async def _commands(backend: SandboxBackend, kind: str, spec: SandboxSpec) -> float:
    lease = f"{kind}/warm/lease/0"
    run = run_in_sandbox(await backend.create(lease, spec), lease)
    spent = []
    for number in range(WARM_UP + COMMANDS):
        begun = time.perf_counter()
        await run(number)
        spent.append(1e3 * (time.perf_counter() - begun))
    await backend.destroy(lease)
    return statistics.median(spent[WARM_UP:])


async def _at_once(backend: SandboxBackend, folder: Path) -> Row:
    """As many lives of one command at once."""

    async def life(number: int) -> None:
        lease = f"at-once/{number}/lease/0"
        try:
            await run_in_sandbox(await backend.create(lease, CONTAINER), lease)(0)
        finally:
            await backend.destroy(lease)

    begun = time.perf_counter()
    ended = await asyncio.gather(*map(life, range(AT_ONCE)), return_exceptions=True)
    seconds = time.perf_counter() - begun
    failed = sum(each is not None for each in ended)
    label = f"clotho.root={folder / 'containers'}"
    left = docker.from_env().containers.list(all=True, filters={"label": [label]})
    return Row(
        f"{AT_ONCE} containers asked for at once, a command in each",
        f"{failed} failed, {len(left)} left, {seconds:.0f} s",
        "none fails, none is left",
    )


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:64}{row.figure:72}{row.aim}")  # noqa: T201
