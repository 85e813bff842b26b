"""Costs of a sandbox in a container beside a local one, in one run: its life, and a command in it.

python -m benchmarks.containers
"""

import asyncio
import statistics
import time
from contextlib import ExitStack

from benchmarks.commands import run_in_sandbox, sandbox_root
from benchmarks.table import Row
from clotho.config import SandboxSettings, variable
from clotho.sandbox.backend import SandboxBackend, SandboxSpec
from clotho.sandbox.containers.config import DockerConfig
from clotho.sandbox.registry import open_backend
from tests.containers import NoEngine, container_engine
from tests.machine_image import IMAGE, machine_image

LIVES, COMMANDS, WARM_UP, TURNS = 10, 200, 3, 3
AIM_MS, AIM_LIFE_MS = 6, 250


async def measure() -> list[Row]:
    with sandbox_root() as root, ExitStack() as stack:
        try:
            stack.enter_context(container_engine(root / "engine"))
        except NoEngine as reason:
            return [Row("a sandbox in a container", f"not run here: {reason}")]
        machine_image()
        settings = SandboxSettings(docker_host=variable("DOCKER_HOST"))
        backend = open_backend(settings, root / "sandboxes")
        specs = {
            "local": SandboxSpec(disk_mb=64),
            "container": SandboxSpec(backend=DockerConfig(image=IMAGE), disk_mb=64),
        }
        lives = {kind: await _lives(backend, kind, spec) for kind, spec in specs.items()}
        commands = {kind: await _commands(backend, kind, spec) for kind, spec in specs.items()}
    more = lives["container"] - lives["local"]
    return [
        Row(
            f"a sandbox's life: made, {TURNS} commands, verified, destroyed",
            f"{lives['local']:.0f} ms local, {lives['container']:.0f} ms in a container: {more:.0f} ms more",
            f"≤ {AIM_LIFE_MS} ms more",
        ),
        Row(
            "true in a container that is warm",
            f"{commands['container']:.1f} ms, local {commands['local']:.1f} ms (medians of {COMMANDS})",
            f"≤ {AIM_MS} ms",
        ),
    ]


async def _lives(backend: SandboxBackend, kind: str, spec: SandboxSpec) -> float:
    """The median of `LIVES`, in milliseconds."""
    spent = []
    for number in range(WARM_UP + LIVES):
        begun, lease = time.perf_counter(), f"{kind}/{number}/lease/0"
        run = run_in_sandbox(await backend.create(lease, spec), lease)
        for turn in range(TURNS):
            await run(turn)
        await run_in_sandbox(await backend.open_verifier(lease, 0, {}), "verifier")(0)
        await backend.destroy(lease)
        spent.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(spent[WARM_UP:])


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


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:64}{row.figure:72}{row.aim}")  # noqa: T201
