"""Tools with a process of their own: what the script says, and a part of the matrix, played for real."""

import json
from collections.abc import Mapping

import pytest

from chaos.plays import Name
from chaos.results import CellResult
from chaos.tools.delegating import DELEGATION_SCRIPT
from chaos.tools.faults import there_is
from chaos.tools.play import play_all
from chaos.tools.scripts import BROWSER_SCRIPT, MCP_SCRIPT, ToolScript
from clotho.models.messages import ChatMessage
from clotho.plugins.demo.execution_markers import marks_in
from clotho.testing.script import Question, ScriptedTurn
from tests.chaos.patience import LANES, missed_with_patience, patience

CELLS: tuple[Name, ...] = (("mcp-sandbox", "in-tool"),)
"""A script that runs a program beside the command; `make chaos` plays all."""


def said(script: ToolScript, shown: str, seconds: int = 0) -> ScriptedTurn:
    messages = (ChatMessage(role="tool", content=shown),)
    return script.policy(seconds)(Question(key="", model="scripted", messages=messages))


def test_the_script_looks_where_no_mark_is_shown_and_leaves_the_first_one_missing() -> None:
    assert said(MCP_SCRIPT, "the outcome is unknown").calls == (MCP_SCRIPT.look,)
    [call] = said(MCP_SCRIPT, "Done: 0001-00", seconds=4).calls
    assert call.arguments == {"call": "0002-00", "seconds": 0}
    [first] = said(MCP_SCRIPT, "Done:", seconds=4).calls
    assert first.arguments == {"call": "0001-00", "seconds": 4}
    assert said(MCP_SCRIPT, "Done: 0001-00 0002-00 0003-00").calls == ()


def test_the_script_clicks_the_button_of_its_mark_and_pause() -> None:
    buttons = '- button "0001-00 in 0 s" [ref=e4]\n- button "0001-00 in 4 s" [cursor=pointer] [ref=e6]'
    shown = json.dumps({"snapshot": f"- paragraph [ref=e2]: 'Done:'\n{buttons}"})
    [call] = said(BROWSER_SCRIPT, shown, seconds=4).calls
    assert call.arguments == {"ref": "e6"}


def test_a_child_begins_leaves_its_mark_and_says_how_often_it_did_each() -> None:
    policy = DELEGATION_SCRIPT.policy(4)
    asks = ChatMessage(role="user", content="Leave the marks 0001-00, 0002-00, each once.")
    shown = ChatMessage(role="tool", content="Done:")
    delegating, beside = policy(Question(key="", model="scripted", messages=(asks, shown))).calls
    assert isinstance(delegating.arguments, dict) and beside.name == "terminal"
    goal = ChatMessage(role="user", content=str(delegating.arguments["goal"]))
    said: list[str] = []
    messages: tuple[ChatMessage, ...] = (goal,)
    for _ in range(3):
        turn = policy(Question(key="", model="scripted", messages=messages))
        said += [str(call.arguments) for call in turn.calls]
        result = ChatMessage(role="tool", content=json.dumps({"output": "ran: begun 0001-00\n"}))
        messages += (ChatMessage(role="assistant", content=turn.content), result)
    assert ["begun-0001-00" in command for command in said] == [True, True] and "sleep 4" in said[1]
    assert marks_in(str(turn.content)) == {"begun": 1, "0001-00": 1}


@pytest.fixture(scope="module")
async def results() -> Mapping[Name, CellResult]:
    played: list[CellResult] = []
    with patience():
        await play_all(list(filter(there_is, CELLS)), played.append, LANES)
    return {(result.fault, result.phase): result for result in played}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "phase"), CELLS)
async def test_no_mark_is_lost_or_left_twice(
    results: Mapping[Name, CellResult], fault: str, phase: str
) -> None:
    if not there_is((fault, phase)):
        pytest.skip("it takes Chromium, bubblewrap and Playwright")
    result = results[fault, phase]
    assert missed_with_patience(result) == [], result
