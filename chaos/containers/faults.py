"""Faults of sandboxes in containers, beside those of any sandbox."""

import asyncio
from collections.abc import Callable

from docker import APIClient
from docker.errors import APIError

from chaos import sandboxes
from chaos.faults import WORKER_LIMIT, Fault, kill_supervisor, kill_worker
from chaos.phases import Hit
from chaos.stage import Stage
from clotho.plugins.containers.folders import ContainerFolder

GONE = "no such container"
ENGINE_OUTAGE = 4.0
"""Seconds: longer than a step waits before it asks again."""


async def kill_service(stage: Stage, hit: Hit, rollout: str) -> None:
    await stage.podman.kill()
    hit.release()
    await asyncio.sleep(ENGINE_OUTAGE)
    await stage.podman.start()


async def kill_engine(stage: Stage, hit: Hit, rollout: str) -> None:
    await stage.podman.kill_everything()
    hit.release()
    await asyncio.sleep(ENGINE_OUTAGE)
    await stage.podman.start()


async def kill_containers(stage: Stage, hit: Hit, rollout: str) -> None:
    await _each_container(stage, rollout, lambda engine, container: engine.kill(container))
    hit.release()


async def remove_containers(stage: Stage, hit: Hit, rollout: str) -> None:
    await _each_container(
        stage, rollout, lambda engine, container: engine.remove_container(container, force=True)
    )
    hit.release()


async def _each_container(stage: Stage, rollout: str, strike: Callable[[APIClient, str], None]) -> None:
    """The agent's and its verifier's, where they aren't removed by now."""
    engine = stage.podman.sdk.api
    for lease in await sandboxes.leases_of(stage, rollout):
        for name in ContainerFolder.of_lease(stage.sandbox_folder / "containers", lease).instances():
            for container in engine.containers(all=True, filters={"name": f"^{name}$"}):
                try:
                    await asyncio.to_thread(strike, engine, container["Id"])
                except APIError as error:
                    # podman doesn't say 404 of one that it removes just now
                    if GONE not in str(error).lower():
                        raise


FAULTS = {
    "container-worker": Fault("SIGKILL of a worker", kill_worker, WORKER_LIMIT, counts_from_strike=True),
    "engine": Fault(
        f"SIGKILL of the engine, back after {ENGINE_OUTAGE:g} s; its containers run on", kill_service
    ),
    "engine-whole": Fault(
        f"SIGKILL of the engine and of everything in its containers, back after {ENGINE_OUTAGE:g} s",
        kill_engine,
    ),
    "container-first": Fault("SIGKILL of a container's first process", kill_supervisor),
    "container-kill": Fault("`podman kill`", kill_containers),
    "container-rm": Fault("`podman rm --force`", remove_containers),
}
