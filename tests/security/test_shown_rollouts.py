"""A rollout whose model, tools and verifier say hostile things, in all that shows and exports it."""

import json
import unicodedata

import pytest

from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.support import start
from tests.workflows.scripts import run, say

DEEP = "[" * 3_000 + "]" * 3_000
NAMES = ("<img src=x onerror=alert(1)>", "**`bold`** \x1b[2J\u202e")
SPOKEN = "done \x1b]0;owned\x07\x9b2J \u202e\u2028"


def hostile_turns() -> tuple[ScriptedTurn, ...]:
    calls = tuple(ScriptedCall(name=name, arguments="{}") for name in NAMES)
    deep = (
        ScriptedCall(name="terminal", arguments=DEEP),
        ScriptedCall(name="todo", arguments=f'{{"todos": {DEEP}}}'),
        ScriptedCall(name="todo", arguments='{"merge": NaN, "todos": 1e999, "id": ' + "9" * 5_000 + "}"),
    )
    return (
        ScriptedTurn(calls=calls, content=SPOKEN),
        ScriptedTurn(calls=deep),
        run("printf '\\033]0;owned\\007\\302\\2332J \\342\\200\\256'; echo -n 1 > /work/score"),
        say(SPOKEN),
    )


@pytest.fixture(scope="module")
async def rollout(cluster: Cluster) -> str:
    model = ScriptedModel(Script(conversations=(Conversation(variants=(hostile_turns(),)),)))
    async with serving(model) as url:
        await (await start(cluster, "hostile-words", url)).result()
    return "hostile-words/g000000/r0"


def unsafe(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cs") or c in "\u202e\u2028"}


@pytest.mark.attack("records", "arguments of 3,000 nested brackets, exported and shown")
@pytest.mark.attack("records", "terminal escapes and directional overrides in what is exported and shown")
@pytest.mark.parametrize("form", ["sharegpt", "messages", "groups"])
async def test_an_export_is_whole_valid_and_harmless(cluster: Cluster, rollout: str, form: str) -> None:
    done = await clotho("export", "hostile-words", "--format", form, "--store", cluster.store)
    assert (done.status, done.error) == (0, "")
    assert unsafe(done.output) == {"\n"}
    (line,) = done.output.splitlines()

    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    read = json.loads(line, parse_constant=no_constant)
    said = read["rollouts"][0] if form == "groups" else read
    messages = [m.get("content", m.get("value")) for m in said.get("messages", said.get("conversations"))]
    assert messages[-1] == SPOKEN, "nothing is lost"
    assert DEEP in json.dumps(read)


@pytest.mark.attack("records", "terminal escapes and directional overrides in what is exported and shown")
async def test_a_rollout_is_shown_harmlessly(cluster: Cluster, rollout: str) -> None:
    done = await clotho("show", rollout, "--store", cluster.store)
    assert (done.status, done.error) == (0, "")
    assert unsafe(done.output) == {"\n"}
    assert "␛]0;owned␇" in done.output
    assert DEEP in done.output.replace("\n", "")


@pytest.mark.attack("records", "Markdown, HTML and links in tool names and errors, in the Temporal UI")
async def test_tool_names_are_code_in_summaries(cluster: Cluster, rollout: str) -> None:
    handle = cluster.client.get_workflow_handle(rollout)
    summaries = [
        json.loads(event.user_metadata.summary.data)
        async for event in handle.fetch_history_events()
        if event.user_metadata.HasField("summary")
    ]
    assert "0.0 `<img src=x onerror=alert(1)>`" in summaries
    assert "0.1 `**ˋboldˋ** �[2J�`" in summaries
