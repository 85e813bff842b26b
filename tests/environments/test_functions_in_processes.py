"""Own tools run where their author's code runs, and a crash of theirs is an answer to the model."""

import json
import os
from collections.abc import AsyncIterator

import pytest

from clotho.config import variable
from clotho.environment.handles import EnvironmentHandle
from clotho.environment.instances import EnvironmentProcesses
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import CallContext, Tool, ToolOutcome, ToolSettings
from tests.environments.test_processes import SMALL, manifest


@pytest.fixture(scope="module")
async def environment() -> AsyncIterator[EnvironmentHandle]:
    async with EnvironmentProcesses(bounds=SMALL) as environments:
        yield await environments.get(manifest())


def tool_of(environment: EnvironmentHandle, name: str) -> Tool:
    return next(each for each in environment.tools if each.name == name)


async def called(environment: EnvironmentHandle, name: str, **arguments: object) -> ToolOutcome:
    context = CallContext(
        rollout="run/g000000/r0",
        call=("call", "0000-00"),
        tool_call_id="call-0",
        settings=ToolSettings(),
        state={"Tally": {"total": 40}},
        instance=None,
        dispatcher=Dispatcher(Registry([]), variable),
    )
    return await tool_of(environment, name).run(arguments, context)


async def test_a_tool_runs_in_its_authors_process(environment: EnvironmentHandle) -> None:
    outcome = await called(environment, "misbehave", how="pid")
    assert int(outcome.content) != os.getpid()


async def test_the_state_of_a_class_comes_and_goes_with_the_call(environment: EnvironmentHandle) -> None:
    outcome = await called(environment, "add", number=2)
    assert json.loads(outcome.content) == {"result": 42}
    assert outcome.state == {"Tally": {"total": 42}}


@pytest.mark.parametrize(
    ("how", "said"), [("crash", "SIGSEGV"), ("raise", "no such thing"), ("exit", "Tool execution failed")]
)
async def test_a_tool_that_breaks_is_an_error_that_the_model_reads(
    environment: EnvironmentHandle, how: str, said: str
) -> None:
    outcome = await called(environment, "misbehave", how=how)
    assert outcome.error is not None and said in outcome.error
    assert json.loads((await called(environment, "add", number=1)).content) == {"result": 41}


async def test_a_tool_that_hangs_is_ended(environment: EnvironmentHandle) -> None:
    outcome = await called(environment, "hang")
    assert outcome.error is not None and "no answer within 0.5 s" in outcome.error
