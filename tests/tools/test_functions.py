"""Functions declared as tools: their schemas, their results, and what becomes of those that misbehave."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from clotho.config import variable
from clotho.environment import tool
from clotho.environment.function_tools import function_tool
from clotho.environment.functions import declared_functions
from clotho.environment.in_process import called_in_thread
from clotho.environment.tools import registry_of
from clotho.errors import HostUnavailable, InvalidInput, SandboxLost
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.results import INTERRUPTED
from clotho.tools.tool import CallContext, Dispatched
from tests.tools import own_tools
from tests.tools.calls import ToolCalls, fields

OWN = [
    function_tool(each.description, partial(called_in_thread, each)) for each in declared_functions(own_tools)
]
REGISTRY = Registry([*Registry.discover(), *OWN])


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """Threads that a test blocked end with it."""
    own_tools.CALLS.clear()
    own_tools.RELEASED.clear()
    yield
    own_tools.RELEASED.set()


@pytest.fixture
def own(calls: ToolCalls) -> Iterator[ToolCalls]:
    """The shared sandbox, with the tools of the functions."""
    usual = calls.dispatcher
    calls.dispatcher = Dispatcher(REGISTRY, variable)
    yield calls
    calls.dispatcher = usual


def schema(name: str) -> dict[str, Any]:
    found = REGISTRY.get(name)
    assert found is not None
    return found.parameters


def test_a_schema_comes_from_signature_and_docstring() -> None:
    draw = REGISTRY.get("draw")
    assert draw is not None and draw.description == "Draw points.\n\nThey are kept."
    assert draw.parameters["required"] == ["points", "colour", "when"]
    properties = schema("draw")["properties"]
    assert properties["points"]["description"] == "Where to draw, one after the other."
    assert properties["colour"]["description"] == "In which colour."
    assert properties["points"]["items"]["properties"]["x"] == {"type": "integer"}
    assert properties["note"] == {"type": "string"} and properties["width"]["default"] == 1.0
    assert set(schema("plant")["$defs"]) == {"Tree"}
    assert "ctx" not in schema("note")["properties"] and "self" not in schema("add")["properties"]


def test_a_function_says_itself_whether_it_needs_a_sandbox_and_changes_it() -> None:
    found = {each.name: (each.sandboxed, each.changes_workspace) for each in OWN}
    assert found["note"] == (True, True) and found["read_twice"] == (True, False)
    assert found["draw"] == (False, True) and found["total_so_far"] == (False, False)


def test_functions_that_no_model_could_call_are_refused() -> None:
    def undocumented(text: str) -> str:
        return text

    def untyped(text) -> str:  # type: ignore[no-untyped-def]
        """Say it."""
        return str(text)

    def unschemed(text: asyncio.Event) -> str:
        """Say it."""
        return str(text)

    for function in (undocumented, untyped, unschemed):
        with pytest.raises(InvalidInput, match=function.__name__):
            tool(function)


def test_a_declared_function_is_still_one() -> None:
    assert own_tools.Counter(total=1).add(2) == 3


async def test_arguments_arrive_in_their_types(own: ToolCalls) -> None:
    good: dict[str, Any] = {"points": [{"x": "1"}], "colour": "red", "when": "2026-01-02", "note": None}
    assert fields(await own.run("draw", good)) == {"when": "2026-01-02", "points": [{"x": 1, "y": 0}]}
    wrong: list[dict[str, Any]] = [{"points": []}, {**good, "colour": "green"}, {**good, "when": "soon"}]
    for bad in wrong:
        refused = await own.run("draw", bad)
        assert refused.failure is not None and "Invalid arguments for draw" in refused.content


async def test_a_type_may_contain_itself(own: ToolCalls) -> None:
    tree = {"branches": [{"branches": []}, {"branches": [{"branches": []}]}]}
    assert fields(await own.run("plant", {"tree": tree})) == {"result": 4}
    assert (await own.run("plant", {"tree": {"branches": [3]}})).failure is not None


async def test_the_sandbox_is_at_hand_and_the_models_shell_left_alone(own: ToolCalls) -> None:
    assert fields(await own.run("note", {"text": "one"})) == {}
    assert (await own.run("note", {"text": "two"})).content == "2"
    assert fields(await own.run("set_note", {"text": "three"})) == {"result": True}
    assert (await own.run("read_twice", {"path": "notes"})).content == "threethree"
    assert fields(await own.run("terminal", {"command": "pwd"}))["output"] == "/work\n"
    refused = await own.run("write_to", {"path": "/etc/passwd"})
    assert "error" in fields(refused) and "written" not in refused.content


@pytest.mark.parametrize(
    ("kind", "told"),
    [("value", "ValueError: no such thing"), ("exit", "SystemExit: 3"), ("stop", "StopIteration")],
)
async def test_a_function_that_raises_is_a_tool_error(own: ToolCalls, kind: str, told: str) -> None:
    done = await own.run("fail", {"kind": kind})
    assert done.failure is not None and f"Tool execution failed: {told}" in fields(done)["error"].replace(
        "RuntimeError: ", ""
    )


@pytest.mark.parametrize("function", ["block", "block_loop", "wait_for_ever", "endless"])
async def test_a_function_that_never_answers_holds_up_nothing(own: ToolCalls, function: str) -> None:
    """Were the loop held up, this test would not end: what blocks is released after it."""
    done = await own.run(function, {})
    assert done.failure is not None and "gave no answer within 0.3 s" in done.content


async def test_what_is_no_json_is_a_tool_error(own: ToolCalls) -> None:
    for kind in ("object", "cycle", "infinity"):
        done = await own.run("odd", {"kind": kind})
        assert done.failure is not None and "odd returned what isn't JSON" in done.content, kind
    assert fields(await own.run("odd", {"kind": "none"})) == {"result": None}
    assert (await own.run("odd", {"kind": "surrogate"})).content == "?"
    assert (await own.run("odd", {"kind": "text"})).content == "plain text"


async def test_state_belongs_to_the_rollout_and_survives_what_raises(own: ToolCalls) -> None:
    assert fields(await own.run("add", {"number": 40})) == {"result": 40}
    assert fields(await own.run("add", {"number": 60})) == {"result": 100}
    assert (await own.run("add", {"number": 1})).failure is not None
    looked = await own.run("total_so_far", {})
    assert fields(looked) == {"result": 100} and looked.state == {}
    for what in ("object", "much"):
        done = await own.run("keep", {"what": what})
        assert done.failure is not None and "the state of Counter" in done.content and done.state == {}


class Attempts:
    """Marks a call as begun, as the journal does."""

    def __init__(self) -> None:
        self.begun = False

    async def claim(self) -> bool:
        first, self.begun = not self.begun, True
        return first


async def interrupted(own: ToolCalls, name: str, text: str) -> Dispatched:
    """The outcome of a second attempt at a call, the first of which left no answer."""
    attempts = Attempts()
    own.next()
    dispatcher = Dispatcher(REGISTRY, variable)

    async def attempt() -> Dispatched:
        given = own.context()
        context = CallContext(**{**vars(given), "claim": attempts.claim})
        return await dispatcher.run(name, f'{{"text": "{text}"}}', REGISTRY.names, context)

    await attempt()
    return await attempt()


async def test_an_interrupted_call_is_repeated_only_where_that_is_harmless(own: ToolCalls) -> None:
    told = await interrupted(own, "note", "once")
    assert fields(told) == {"error": INTERRUPTED} and told.failure is None
    assert await own.shell("cat notes") == "once\n" and own_tools.CALLS == ["once"]
    assert fields(await interrupted(own, "set_note", "twice")) == {"result": True}


async def test_a_lost_sandbox_is_no_result_even_where_the_function_swallows_it(
    tool_backend: LocalBackend,
) -> None:
    lease = "gone/functions/lease/0"
    calls = ToolCalls(await tool_backend.create(lease, SandboxSpec()), lease)
    calls.dispatcher = Dispatcher(REGISTRY, variable)
    await tool_backend.destroy(lease)
    with pytest.raises(SandboxLost):
        await calls.run("swallow", {})


async def test_a_tool_that_this_host_lacks_is_its_failure(calls: ToolCalls) -> None:
    with pytest.raises(HostUnavailable, match="read_twice"):
        await calls.dispatcher.run("read_twice", "{}", ["read_twice"], calls.context())


def test_an_environment_has_the_tools_of_its_module() -> None:
    names = registry_of("examples.how_to.shop:Shop").names
    assert {"price", "put", "check_out", "terminal"} <= set(names)
    assert registry_of("nowhere:Nothing").names == Registry.discover().names
