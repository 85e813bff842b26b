"""What holds for every tool, whatever it does."""

import re
from dataclasses import replace

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.arguments import check_schema, coerce, violation
from clotho.tools.registry import Registry
from clotho.tools.results import INTERRUPTED
from clotho.tools.tool import Tool
from tests.tools.calls import REGISTRY, SETTINGS, ToolCalls, fields
from tests.tools.row import Arguments, Row
from tests.tools.rows import LONG_CHARS, ROWS

FUNCTION = re.compile(r"[a-z][a-z0-9_]{0,63}")
MOST_STEPS = 24
"""Deaths that are tried: a tool that waits asks its sandbox again and again."""
BOUNDED = SETTINGS.model_copy(update={"max_turn_chars": LONG_CHARS, "preview_chars": 100})


def tool_of(name: str) -> Tool:
    tool = REGISTRY.get(name)
    assert tool is not None
    return tool


def test_every_tool_has_a_row() -> None:
    assert {name for name, row in ROWS.items() if not row.stands_for} == set(Registry.discover().names)


def test_the_schema_tells_what_every_argument_means(name: str) -> None:
    tool = tool_of(name)
    assert FUNCTION.fullmatch(tool.name) and tool.description.endswith((".", "!"))
    check_schema(name, tool.parameters)
    properties = tool.parameters["properties"]
    assert isinstance(properties, dict)
    assert [each for each, schema in properties.items() if not schema.get("description")] == []  # type: ignore[union-attr]


def test_arguments_are_accepted_as_models_spell_them(name: str, row: Row) -> None:
    parameters = tool_of(name).parameters
    for arguments in (row.good, row.spelled):
        assert violation(coerce(arguments, parameters), parameters) is None
    if row.bad is not None:
        assert violation(coerce(row.bad, parameters), parameters) is not None


async def test_a_misspelled_call_does_the_same(name: str, row: Row, calls: ToolCalls) -> None:
    await calls.all(row.before)
    first = await calls.run(name, row.good)
    await calls.start_over()
    await calls.all(row.before)
    second = await calls.run(name, row.spelled)
    assert first.failure is None and not first.names_error, first.content
    assert fields(first, row.varies) == fields(second, row.varies) != {}


async def test_refused_arguments_count_as_an_error_and_change_nothing(
    name: str, row: Row, calls: ToolCalls
) -> None:
    await calls.all(row.before)
    refused: list[Arguments | str] = ["{", "[1]", '{"a": NaN}', *([] if row.bad is None else [row.bad])]
    for arguments in refused:
        done = await calls.run(name, arguments)
        assert done.failure is not None and done.failure.tool == name
        assert fields(done)["error"] and not done.changes and done.state == {}
    assert await calls.shell("ls touched 2>/dev/null") == ""


async def test_a_long_result_is_bounded(name: str, row: Row, calls: ToolCalls) -> None:
    if row.long is None:
        await calls.all(row.before)
        assert len((await calls.run(name, row.good)).content) < LONG_CHARS
        return
    await calls.all(row.long_before)
    whole = await calls.run(name, row.long)
    assert len(whole.content) > LONG_CHARS, whole.content
    await calls.start_over()
    await calls.all(row.long_before)
    calls.settings = BOUNDED
    cut = await calls.run(name, row.long)
    assert cut.content.startswith("<persisted-output>") and len(cut.content) <= LONG_CHARS
    assert cut.spilled == tool_of(name).sandboxed


async def test_a_second_attempt_finds_the_first(name: str, row: Row, calls: ToolCalls) -> None:
    await calls.all(row.before)
    first = await calls.run(name, row.good)
    second = await calls.attempt(name, row.good)
    if row.effect == "told":
        assert fields(second) == {"error": INTERRUPTED}
    else:
        assert fields(first, row.varies) == fields(second, row.varies)
    if row.shows is not None:
        assert await calls.effect(row.shows) == row.prints


@pytest.mark.slow
async def test_the_worker_dies_at_any_step(name: str, row: Row, calls: ToolCalls) -> None:
    """Before or after each request: the next attempt ends as one that nobody disturbed, or tells the model."""
    if not tool_of(name).sandboxed and row.effect != "told":
        pytest.skip("it runs in no sandbox, and leaves nothing outside its result")
    await calls.all(row.before)
    undisturbed = fields(await calls.run(name, row.good), row.varies)
    deaths = 0
    for step in range(MOST_STEPS):
        last, served = 1 + step // 2, step % 2 == 1
        await calls.start_over()
        await calls.all(row.before)
        unmade = await calls.effect(row.shows) if row.effect == "told" and row.shows else None
        if not await calls.dies(name, row.good, last, served):
            break
        deaths += 1
        done = await calls.attempt(name, row.good)
        if row.effect == "told" and row.shows is not None and fields(done) == {"error": INTERRUPTED}:
            assert await calls.effect(row.shows) in (unmade, row.prints), (last, served)
            continue
        assert fields(done, row.varies) == undisturbed, (last, served)
        if row.shows is not None:
            assert await calls.effect(row.shows) == row.prints, (last, served)
    assert deaths > 0


async def test_a_sandbox_that_is_gone_is_never_a_result(
    name: str, row: Row, tool_backend: LocalBackend
) -> None:
    lease = f"gone/{name}/lease/0"
    calls = ToolCalls(await tool_backend.create(lease, SandboxSpec()), lease)
    await calls.all(row.before)
    await tool_backend.destroy(lease)
    if tool_of(name).sandboxed:
        with pytest.raises(SandboxLost):
            await calls.run(name, row.good)
    else:
        assert (await calls.run(name, row.good)).failure is None


async def test_a_call_is_repeated_in_the_next_sandbox_as_its_tool_says(
    name: str, row: Row, calls: ToolCalls, tool_backend: LocalBackend
) -> None:
    await calls.all(row.before)
    manifest = calls.context().sandbox.manifest
    before = await manifest()
    first = await calls.run(name, row.good)
    assert first.changes == (row.lost != "looks again")
    if row.lost == "looks again":
        assert before == await manifest()
        return
    lease = f"next/{name}/lease/1"
    following = ToolCalls(await tool_backend.create(lease, SandboxSpec()), lease)
    await following.all(row.before)
    following.next()
    repeated = await following.replay(name, row.good, replace(first, spilled=False))
    assert (repeated is None) == (row.lost == "diverged")
    if repeated is not None:
        assert (repeated.exit_code, repeated.names_error) == (first.exit_code, first.names_error)
        assert row.shows is None or await following.effect(row.shows) == row.prints
    await tool_backend.destroy(lease)


async def test_only_offered_tools_are_run(name: str, row: Row, calls: ToolCalls) -> None:
    done = await calls.dispatcher.run(name, "{}", (), calls.context())
    assert done.failure is not None and "Unknown tool" in done.content and not done.changes
