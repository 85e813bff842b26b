"""Code that changes while runs are in flight: recorded histories replay, and versions keep to themselves."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.record_histories import HISTORIES
from workflows.registry import WORKFLOWS, workflow_runner


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    replayer = Replayer(
        workflows=WORKFLOWS, workflow_runner=workflow_runner(), data_converter=pydantic_data_converter
    )
    workflow_id = path.stem.replace("~~", "/~") if "~~" in path.stem else path.stem.replace("~", "/")
    await replayer.replay_workflow(WorkflowHistory.from_json(workflow_id, path.read_text()))


def test_histories_are_recorded_of_every_workflow() -> None:
    text = " ".join(path.read_text()[:2_000] for path in HISTORIES.glob("*.json"))
    for one in WORKFLOWS:
        assert f'"name": "{one.__name__}"' in text


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
