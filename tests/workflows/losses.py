"""Sandboxes of a cluster, as tests lose them and look into them."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from clotho.identifiers.keys import call_key, lease_key
from clotho.rollouts.call import CallEntry
from clotho.sandbox.supervised.launch import lock_holder
from clotho.testing.script import ScriptedCall, ScriptedTurn
from tests.cluster import Cluster
from tests.support import eventually

WAITS = "touch /work/waiting; while [ ! -e /work/go ]; do sleep 0.05; done; echo -n 1 > /work/score"
"""A command that runs when the sandbox is lost, and again in the next."""


def supervisor(cluster: Cluster, lease: str) -> int:
    """The first process of a sandbox, with which everything in it ends."""
    [record] = _records(cluster, lease)
    folder = record.parent
    (alive,) = cluster.folder.glob(f"sandboxes/*/control/{folder.name}/agent/alive")
    holder = lock_holder(alive)
    assert holder is not None
    return holder


async def kill_sandbox(cluster: Cluster, rollout: str, number: int = 0) -> None:
    kill_lease(cluster, lease_key(rollout, number))


def kill_lease(cluster: Cluster, lease: str) -> None:
    os.kill(supervisor(cluster, lease), signal.SIGKILL)


async def journalled(cluster: Cluster, key: str) -> None:
    async def there() -> bool:
        return (cluster.store / key).exists()

    await eventually(there, f"journal entry {key}")


async def output(cluster: Cluster, rollout: str, call: str) -> str:
    entry = await cluster.open_journal().read_required(call_key(rollout, call), CallEntry)
    return str(json.loads(entry.content)["output"]).strip()


async def made(cluster: Cluster, rollout: str, lease: int, name: str) -> Path | None:
    """File `name` in the workspace of a lease."""
    return await made_in(cluster, lease_key(rollout, lease), name)


async def made_in(cluster: Cluster, lease: str, name: str) -> Path | None:
    files = [record.with_name("disk") / "work" / name for record in _records(cluster, lease)]
    return next((file for file in files if file.exists()), None)


def _records(cluster: Cluster, lease: str) -> list[Path]:
    """Records of the lease's sandboxes, without those that are destroyed meanwhile."""
    found = []
    for record in cluster.folder.glob("sandboxes/*/sandboxes/*/sandbox.json"):
        with suppress(FileNotFoundError):
            if f'"{lease}"' in record.read_text():
                found.append(record)
    return found


def diverging() -> ScriptedTurn:
    """A turn whose replay leaves another result in the sandbox each time."""
    commands = ("cat /proc/sys/kernel/random/uuid > /work/id", WAITS)
    return ScriptedTurn(
        calls=tuple(ScriptedCall(name="terminal", arguments={"command": command}) for command in commands)
    )


async def lose_while_waiting(cluster: Cluster, rollout: str) -> None:
    """Kill the sandbox in which WAITS runs, and have it end in the next."""
    await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the command waiting")
    await kill_sandbox(cluster, rollout)
    again = await eventually(lambda: made(cluster, rollout, 1, "waiting"), "it waiting in the next sandbox")
    again.with_name("go").touch()
