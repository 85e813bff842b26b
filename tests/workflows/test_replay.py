"""Code that changes while runs are in flight: recorded histories replay, and versions keep to themselves."""

import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.guard import ELSEWHERE, GOES_ON
from clotho.rollouts.task_queues import TaskQueues
from clotho.temporal.conversion import DATA_CONVERTER
from clotho.temporal.deployments import make_current
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import serving
from tests.cluster import Cluster
from tests.record_histories import HISTORIES
from tests.support import start, version_of
from tests.workflows.holding import LATER_TURNS, Holding
from tests.workflows.scripts import run, say
from workflows.registry import WORKFLOWS

STRICT = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("clotho", "activities", "pydantic")
)
"""Refuses clocks, randomness and I/O in workflow code. Workers do without: it takes more time than that code."""


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    workflow_id = path.stem.replace("~~", "/~") if "~~" in path.stem else path.stem.replace("~", "/", 2)
    await replay(WorkflowHistory.from_json(workflow_id, path.read_text()))


async def replay(history: WorkflowHistory) -> None:
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=STRICT, data_converter=DATA_CONVERTER)
    await replayer.replay_workflow(history)


async def test_a_local_step_that_timed_out_replays() -> None:
    """As it does where a process was frozen in it: the SDK itself ends it then, and records this in its marker."""
    recorded = json.loads((HISTORIES / "slow~g000000~r0.json").read_text())
    markers = [event.get("markerRecordedEventAttributes", {}) for event in recorded["events"]]
    (failed,) = [marker for marker in markers if "failure" in marker]
    failed["failure"] = {
        "message": "Activity timed out",
        "timeoutFailureInfo": {"timeoutType": "TIMEOUT_TYPE_START_TO_CLOSE"},
    }
    await replay(WorkflowHistory.from_json("slow/g000000/r0", recorded))


def test_histories_are_recorded_of_every_workflow() -> None:
    text = " ".join(path.read_text()[:4_000] for path in HISTORIES.glob("*.json"))
    for one in WORKFLOWS:
        assert f'"name": "{one.__name__}"' in text


def test_histories_are_recorded_of_every_kind_of_step() -> None:
    """Done here, gone on with as a regular activity, and left to another process."""
    found = set[str]()
    for path in HISTORIES.glob("*.json"):
        for event in json.loads(path.read_text())["events"]:
            if (marker := event.get("markerRecordedEventAttributes")) is not None:
                failure = marker.get("failure", {}).get("applicationFailureInfo", {})
                found.add(failure.get("type", "done"))
    assert {"done", GOES_ON, ELSEWHERE} <= found


def test_every_workflow_is_registered() -> None:
    folder = Path(inspect.getfile(WORKFLOWS[0])).parent
    modules = [import_module(f"workflows.{path.stem}") for path in folder.glob("*.py")]
    defined = {
        one
        for module in modules
        for _, one in inspect.getmembers(module, inspect.isclass)
        if one.__module__ == module.__name__ and hasattr(one, "__temporal_workflow_definition")
    }
    assert defined == set(WORKFLOWS)


@pytest.mark.slow
async def test_what_began_with_a_version_ends_with_it(private_cluster: Cluster) -> None:
    """Groups one after the other, and a new version during the first: the campaign goes on with the new one."""
    cluster, groups, queue = private_cluster, range(6), TaskQueues().workflows
    turns = (*[run("true")] * 2, say("Done."))
    script = Script(conversations=(Conversation(variants=(turns,)),), latency=0.5)
    model = Holding(script, held=LATER_TURNS)
    async with serving(model) as url:
        for build_id in ("a", "b"):
            await cluster.start_worker(CLOTHO_WORKER__BUILD_ID=build_id)
        await make_current(cluster.client, queue, "clotho", "a")
        handle = await start(cluster, "versions", url, groups=len(groups), max_open_groups=1)
        await model.held(1)
        await make_current(cluster.client, queue, "clotho", "b")
        model.release.set()
        await handle.result()
    began = [await version_of(cluster, f"versions/g{number:06}") for number in groups]
    ended = [await version_of(cluster, f"versions/g{number:06}/r0") for number in groups]
    assert began == ended == sorted(began)
    assert (began[0], began[-1]) == ("a", "b")
    assert await version_of(cluster, "versions/~campaign") == "b"
    assert set(model.calls.requests.values()) == {1}
