import asyncio
import json
from typing import ClassVar

import pytest
from pydantic import JsonValue

from clotho.errors import (
    ClothoError,
    CommandConflict,
    InvalidInput,
    JournalCorrupt,
    SandboxLost,
    SandboxUnavailable,
    StoreUnavailable,
)
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.todo import Todo
from clotho.tools.tool import Arguments, CallContext, Dispatched, Tool, ToolOutcome, ToolSettings

SECRETS = {"TOOL_KEY": "hunter22"}


def call_with(settings: ToolSettings | None = None, state: dict[str, JsonValue] | None = None) -> CallContext:
    """The context of a call that needs no sandbox."""
    return CallContext(
        "run/g000000/r0", ("0001-00",), "call_1", settings or ToolSettings(), state or {}, None
    )


class Speak(Tool):
    name = "speak"
    toolset = "speech"
    description = "Say it."
    parameters: ClassVar = {
        "type": "object",
        "properties": {"what": {"type": "string"}, "times": {"type": "integer", "minimum": 1}},
        "required": ["what"],
    }
    sandboxed = False

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return ToolOutcome(
            content=arguments["what"] * arguments.get("times", 1), state={"said": arguments["what"]}
        )


class Break(Speak):
    name = "break"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        raise self.error


def dispatcher(*tools: Tool) -> tuple[Dispatcher, list[str]]:
    registry = Registry([Speak(), Todo(), *tools])
    return Dispatcher(registry, SECRETS.get), list(registry.names)


async def run(
    name: str,
    arguments: str,
    *tools: Tool,
    context: CallContext | None = None,
    turn_chars: int = 0,
) -> Dispatched:
    dispatch, offered = dispatcher(*tools)
    return await dispatch.run(name, arguments, offered, context or call_with(), turn_chars)


async def test_runs_a_call_with_coerced_arguments() -> None:
    done = await run("speak", '{"what": "ha", "times": "3"}')
    assert (done.content, done.failure, done.state) == ("hahaha", None, {"said": "ha"})


async def test_an_unknown_tool_is_answered_with_the_valid_names() -> None:
    done = await run("shout", "{}")
    assert json.loads(done.content) == {"error": "Unknown tool 'shout'. Available tools: speak, todo"}
    assert done.failure and done.failure.tool == "shout"


async def test_a_tool_that_was_not_offered_is_unknown() -> None:
    dispatch, _ = dispatcher()
    done = await dispatch.run("speak", '{"what": "x"}', ["todo"], call_with())
    assert json.loads(done.content)["error"].endswith("Available tools: todo")


async def test_memory_is_not_for_rollouts() -> None:
    done = await run("memory", "{}")
    assert json.loads(done.content) == {"error": "memory is not available in RL environments"}


async def test_a_name_is_bounded_and_escaped() -> None:
    done = await run("x" * 5_000 + "\x1b", "{}")
    assert len(done.content) < 300 and done.failure and len(done.failure.tool) <= 64


@pytest.mark.parametrize(
    "text", ["{", "[1]", '"x"', '{"what": NaN}', "[" * 200_000, '{"what": "\\ud800"}', "nul", "{} {}"]
)
async def test_arguments_that_are_no_json_object_ask_for_another_try(text: str) -> None:
    done = await run("speak", text)
    assert "Please retry with valid JSON" in json.loads(done.content)["error"]
    assert done.failure and len(done.failure.arguments) <= 150 and len(done.failure.error) <= 300


async def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert json.loads((await run("todo", "")).content)["todos"] == []


async def test_arguments_that_break_the_schema_are_refused_clearly() -> None:
    done = await run("speak", '{"times": 2}')
    assert (
        json.loads(done.content)["error"] == "Invalid arguments for speak: missing required argument 'what'"
    )
    assert done.failure is not None


async def test_an_exception_in_a_tool_is_a_result() -> None:
    done = await run("break", '{"what": "x"}', Break(ValueError("no such moon")))
    assert json.loads(done.content) == {"error": "Tool execution failed: ValueError: no such moon"}
    assert done.failure and done.failure.error == "Tool execution failed: ValueError: no such moon"


@pytest.mark.parametrize(
    "error",
    [
        SandboxLost("gone"),
        SandboxUnavailable("busy"),
        StoreUnavailable("down"),
        CommandConflict("other"),
        JournalCorrupt("key"),
        ClothoError("ours"),
        asyncio.CancelledError(),
    ],
)
async def test_the_infrastructure_never_becomes_a_result(error: BaseException) -> None:
    with pytest.raises(type(error)):
        await run("break", '{"what": "x"}', Break(error))


async def test_what_the_model_can_mend_does() -> None:
    done = await run("break", '{"what": "x"}', Break(InvalidInput("that path is a directory")))
    assert json.loads(done.content) == {"error": "that path is a directory"}


async def test_an_error_with_a_negative_exit_code_counts_and_one_without_does_not() -> None:
    failed = await run("speak", json.dumps({"what": '{"exit_code": -1, "error": "refused"}'}))
    assert failed.failure and failed.failure.error == "refused"
    assert (await run("speak", json.dumps({"what": '{"exit_code": 1, "error": "x"}'}))).failure is None
    assert (await run("speak", json.dumps({"what": '{"exit_code": -1, "error": null}'}))).failure is None


async def test_secrets_are_in_neither_results_nor_failures() -> None:
    named = call_with(ToolSettings(redact=("TOOL_KEY", "NOT_SET")))
    done = await run("speak", '{"what": "say hunter22"}', context=named)
    assert done.content == "say [REDACTED]"
    failed = await run("shout", '{"what": "hunter22"}', context=named)
    assert failed.failure and "hunter22" not in failed.failure.arguments
    assert (await run("speak", '{"what": "say hunter22"}')).content == "say hunter22"


async def test_a_large_result_without_a_sandbox_is_cut_to_its_preview() -> None:
    done = await run("speak", '{"what": "ha", "times": 60000}')
    assert done.content.startswith("<persisted-output>") and done.content.endswith("</persisted-output>")
    assert "120,000 characters" in done.content and len(done.content) < 2_000


async def test_the_budget_of_a_turn_counts_what_came_before() -> None:
    fits = await run("speak", '{"what": "ha", "times": 40000}', turn_chars=120_000)
    spilled = await run("speak", '{"what": "ha", "times": 40000}', turn_chars=120_001)
    assert len(fits.content) == 80_000 and len(spilled.content) < 2_000


async def test_a_result_shorter_than_its_block_is_never_spilled() -> None:
    assert (await run("speak", '{"what": "ha", "times": 900}', turn_chars=10**6)).content == "ha" * 900


async def test_a_tool_may_have_a_limit_of_its_own() -> None:
    settings = ToolSettings(result_chars={"speak": 5_000}, preview_chars=100)
    done = await run("speak", '{"what": "ha", "times": 2501}', context=call_with(settings))
    assert done.content.startswith("<persisted-output>") and len(done.content) < 600


async def test_todo_keeps_its_list_in_the_state() -> None:
    first = await run("todo", '{"todos": [{"id": 1, "content": "dig"}]}')
    assert first.state == {"todo": [{"id": "1", "content": "dig", "status": "pending"}]}
    call = call_with(state=first.state)
    arguments = '{"todos": [{"id": "1", "status": "completed"}], "merge": "true"}'
    second = await run("todo", arguments, context=call)
    assert json.loads(second.content)["summary"] == {
        "total": 1,
        "pending": 0,
        "in_progress": 0,
        "completed": 1,
        "cancelled": 0,
    }
    assert second.state == {"todo": [{"id": "1", "content": "dig", "status": "completed"}]}
    assert first.state == {"todo": [{"id": "1", "content": "dig", "status": "pending"}]}
    read = await run("todo", "{}", context=call_with(state=second.state))
    assert json.loads(read.content)["todos"] == second.state["todo"] and read.state == {}


async def test_a_new_task_needs_content() -> None:
    done = await run("todo", '{"todos": [{"id": "1"}], "merge": true}')
    assert "needs content" in json.loads(done.content)["error"] and done.state == {}
