"""Calls of the terminal that are at work until a test lets them go on."""

from contextlib import suppress
from pathlib import Path

from temporalio.client import WorkflowExecutionStatus

from clotho.rollouts.campaign import CampaignProgress
from clotho.runs.campaigns import CampaignHandle
from clotho.testing.script import ScriptedCall, ScriptedTurn
from tests.cluster import Cluster
from tests.support import eventually

LONGEST_SECONDS = 600
"""The most that a command may ask for; as a rule it is ended after two minutes."""
HOLD = "touch /work/held; until test -e /work/go; do sleep 0.1; done"


def held(then: str) -> ScriptedTurn:
    """A call that does `then` once it is let go."""
    arguments = {"command": f"{HOLD}; {then}", "timeout": LONGEST_SECONDS}
    return ScriptedTurn(calls=(ScriptedCall(name="terminal", arguments=arguments),))


def held_in(cluster: Cluster) -> list[Path]:
    """The workspaces in which a call is held, or was."""
    return [
        file.parent for file in cluster.folder.glob("sandboxes/*/sandboxes/*/disk/work/held") if file.exists()
    ]


def let_go(cluster: Cluster) -> None:
    for workspace in held_in(cluster):
        with suppress(FileNotFoundError):  # it is destroyed meanwhile
            (workspace / "go").touch()


async def let_go_until_the_end(cluster: Cluster, handle: CampaignHandle) -> CampaignProgress:
    """A call begins again, and is held, in another sandbox if its worker is away for long."""

    async def is_over() -> bool:
        let_go(cluster)
        return (await handle.describe()).status is not WorkflowExecutionStatus.RUNNING

    await eventually(is_over, f"the end of {handle.id}")
    return await handle.result()
