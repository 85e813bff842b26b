"""What users see of a harness' rollout: its own tool calls, its conversations, its end, and its starts."""

import html
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.formats.atif import trajectory
from clotho.plugins.formats.inspect_messages import message_fields
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.asked import AskedEntry, asked_text
from clotho.rollouts.group import ToolManifest
from clotho.rollouts.transcript import read_transcript
from clotho.runs.export import recorded_groups
from clotho.runs.request import run_manifest
from clotho.runs.rollouts import program_end_text
from tests.cli.command import clotho
from tests.harness.agent import TOOL
from tests.harness.stored import ASKED, END, MANNER, OUTPUT, ROLLOUT, TURNS, user, write_end, write_harnessed
from tests.support import PATIENCE_SECONDS
from tests.viewer.conftest import StartViewer, browser, view

__all__ = ["browser", "view"]  # fixtures

SIBLING = "harnessed/g000000/r1"
NOWHERE = {"CLOTHO_TEMPORAL__ADDRESS": "127.0.0.1:1"}
GONE_ON = "── the program was started anew, in sandbox 1: new calls from here on"


@pytest.fixture
async def journal(tmp_path: Path) -> Journal:
    journal = Journal(FilesystemStore(tmp_path / "store"))
    await write_harnessed(journal)
    return journal


def assert_in_order(shown: str, *marks: str) -> None:
    at = 0
    for mark in marks:
        found = shown.find(mark, at)
        assert found >= 0, f"{mark!r} isn't after {shown[:at][-80:]!r} in\n{shown}"
        at = found + len(mark)


async def test_results_of_its_own_calls_are_those_that_it_sent_next(journal: Journal) -> None:
    transcript = await read_transcript(journal, ROLLOUT, len(TURNS))
    made = [[(call.tool, call.content) for call in step.calls] for step in transcript.steps]
    assert made == [
        [("terminal", "a.py")],
        [],
        [("terminal", "2 passed"), ("terminal", "+1 -1")],
        [],
        [],
    ]
    (call,) = transcript.steps[0].calls
    assert (call.error, call.seconds, call.lease, call.changes) == (None, 0.0, None, False)
    added = [[each.role for each in step.added] for step in transcript.steps]
    assert added == [["system", "user"], ["user"], [], ["user"], ["user"]]
    assert transcript.offered == (TOOL,)


async def test_calls_whose_results_are_not_sent_yet_have_none(journal: Journal) -> None:
    assert (await read_transcript(journal, ROLLOUT, 1)).steps[0].calls == ()


def test_how_a_call_goes_on_is_said_where_it_is_not_from_the_last() -> None:
    asked = dict(enumerate(ASKED))
    assert [asked_text(number, asked) for number in asked] == [
        "",
        "beside the task: no training data",
        "goes on from turn 0",
        "the program was started anew, in sandbox 1: new calls from here on",
        "repeats 4 messages of the conversation of turn 2",
    ]
    asked[5] = AskedEntry(call="f-0", start=1, messages=(user("Look for bugs."),), tools="none")
    assert asked_text(5, asked) == "begins another conversation"


def test_a_programs_end_is_said_in_sentences() -> None:
    assert program_end_text("codex", 0, END.model_copy(update={"diverged_at": None, "repeated": 0})) == [
        "codex ended with exit code 0 after 5 calls of the model and 2.5 s of its own work"
    ]
    assert program_end_text("codex", 1, END)[1:] == [
        "started anew in sandbox 1: 3 of 5 calls answered from the journal",
        "call 3 was the first that the earlier start hadn't made",
        "calls were answered again once: their connections were cut",
    ]


async def test_show_tells_a_programs_conversations_its_calls_and_its_end(
    journal: Journal, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    begun = (await clotho("show", ROLLOUT, "--store", store, environment=NOWHERE)).output
    assert_in_order(
        begun,
        *("── user\nMake the tests pass.\n", "── system · shortened from 2,500 characters\n"),
        *("In /work.\n", "── assistant, turn 0", 'terminal({"command": "ls"})\n'),
        *("── beside the task: no training data\n", "── user\nA title for", "assistant, turn 1"),
        *("── goes on from turn 0\n", "── terminal · by the program\na.py\n", "assistant, turn 2"),
        *(GONE_ON, "by the program\n2 passed\n", "by the program\n+1 -1\n", "Say what you did.", "turn 3"),
        *("── repeats 4 messages of the conversation of turn 2\n", "── user\nSum it up.\n", "turn 4"),
        "── codex ended with exit code 0 after 5 calls of the model and 2.5 s of its own work\n",
        "── started anew in sandbox 1: 3 of 5 calls answered from the journal\n",
        *(OUTPUT, "not finished"),
    )
    assert MANNER not in begun
    await write_end(journal)
    ended = (await clotho("show", ROLLOUT, "--store", store)).output
    assert_in_order(
        ended,
        OUTPUT,
        "reward 1",
        "completed: 5 turns, 25 tokens, 7.5 s active",
        "lost sandboxes: 1",
    )
    record = json.loads((await clotho("show", ROLLOUT, "--store", store, "--json")).output)
    assert record["programs"]["1"] == json.loads(END.model_dump_json())
    assert record["transcript"]["steps"][2]["calls"][0]["content"] == "2 passed"


async def test_a_turn_that_is_still_sampled_while_later_ones_are_done(
    journal: Journal, tmp_path: Path, view: StartViewer
) -> None:
    await journal.delete([f"{ROLLOUT}/turn/0003"])
    record = json.loads((await clotho("show", ROLLOUT, "--store", tmp_path / "store", "--json")).output)
    assert len(record["transcript"]["steps"]) == 3
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        page = text_of((await client.get(f"/r/{ROLLOUT}")).text)
    assert_in_order(page, "Say what you did.", "assistant, turn 3 entry It is being sampled.", "It is done.")


async def test_exports_have_a_programs_calls_and_tools(journal: Journal) -> None:
    await write_end(journal)
    program = Agent(kind=AgentKind.PROGRAM, program="codex")
    manifest = run_manifest("tests.environments.one_file:OneFile", "harnessed", "scripted", agent=program)
    ((_, _, (read,)),) = [each async for each in recorded_groups(journal, "harnessed")]
    told: Any = trajectory(read, ToolManifest(tools=(), toolsets=(), unavailable={}), manifest)
    assert told["agent"]["name"] == "codex" and told["agent"]["tool_definitions"] == [TOOL]
    sources = [step["source"] for step in told["steps"]]
    assert sources == ["system", "user", "agent", "user", "agent", "agent", "user", "agent", "user", "agent"]
    assert [step["step_id"] for step in told["steps"]] == [*range(1, len(sources) + 1)]
    first, beside = told["steps"][2], told["steps"][4]
    assert first["observation"] == {"results": [{"source_call_id": "call00", "content": "a.py"}]}
    assert first["llm_call_count"] == 1 and first["metrics"]["completion_tokens"] == 5
    assert beside["extra"] == {"aside": True, "begins_conversation": True}
    roles = [message_fields(at, each)["role"] for at, each in enumerate(read.transcript.messages)]
    assert roles == ["system", "user", "assistant", "tool", "user", "assistant"]


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


async def test_the_viewer_shows_them(
    journal: Journal, tmp_path: Path, view: StartViewer, browser: Browser
) -> None:
    await write_end(journal)
    await write_harnessed(journal, SIBLING)
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        page = text_of((await client.get(f"/r/{ROLLOUT}")).text)
        compared = text_of((await client.get("/compare", params={"a": ROLLOUT, "b": SIBLING})).text)
        entry = await client.get(f"/entry/{ROLLOUT}/agent/1")
        found = text_of((await client.get("/search/harnessed", params={"text": "careful agent"})).text)
    assert entry.status_code == 200 and "asked/0000" in found
    assert_in_order(
        page,
        "Codex ended with exit code 0 after 5 calls of the model",
        "Started anew in sandbox 1: 3 of 5 calls answered from the journal.",
        *("The end of its output, 26 characters", "turn.completed"),
        "the agent's program at work between turns 8.0 s",
        *("system sent by the program, 2,500 characters", "assistant, turn 0", "terminal by the program"),
        *("a.py", "Beside the task: no training data.", "assistant, turn 1", "Goes on from turn 0."),
        *("2 passed", "+1 -1", "The program was started anew, in sandbox 1", "assistant, turn 3"),
        *("Repeats 4 messages of the conversation of turn 2.", "Sum it up.", "assistant, turn 4"),
    )
    assert "no result" not in page
    assert_in_order(compared, "agent codex codex", "starts 2 2", "calls answered from the journal 3 3")
    assert_in_order(compared, "These turns are the same.", "2 passed", "2 passed")
    report = tmp_path / "report.html"
    await clotho("report", "harnessed", "--store", tmp_path / "store", "-o", report, environment=NOWHERE)
    assert "terminal 3 not known: an agent's program made the calls" in text_of(report.read_text())
    shown = await browser.new_page(viewport={"width": 1200, "height": 900})
    await shown.goto(f"{url}/r/{ROLLOUT}")
    assert not await shown.locator("#asked-0-0 .md").is_visible(), "a long message is folded"
    assert await shown.locator("#asked-1-0 .md").is_visible()
    await shown.locator("#output-1 summary").click()
    assert OUTPUT.strip() in await shown.locator("#output-1").inner_text()
    await shown.screenshot(path=tmp_path / "rollout.png", full_page=True)
