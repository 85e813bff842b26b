"""Digests of what harnesses send: equal for two starts of one, and different for anything else that differs."""

import json
import re
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.plugins.harness.digest import Normalization, Volatile
from clotho.plugins.harness.harnesses import KNOWN
from clotho.plugins.harness.harnesses.claude_code import ClaudeCode
from clotho.plugins.harness.harnesses.codex import Codex
from clotho.plugins.harness.harnesses.mini_swe_agent import MiniSweAgent
from clotho.plugins.harness.harnesses.opencode import OpenCode

PLACES = ("/work", "/home/agent")
EVERY = Normalization([each for kind in KNOWN.values() for each in kind.volatile], PLACES)


def said(role: Any, content: Any = None, *calls: ToolCall, **fields: Any) -> ChatMessage:
    return ChatMessage(role=role, content=content, tool_calls=calls, **fields)


def call(arguments: str, name: str = "bash", id: str = "call_1") -> ToolCall:
    return ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))


def text(*texts: str) -> tuple[dict[str, Any], ...]:
    return tuple({"type": "text", "text": each} for each in texts)


IMAGE = {"type": "image_url", "image_url": {"url": "data:,1"}}
OTHER_IMAGE = {"type": "image_url", "image_url": {"url": "data:,2"}}
CHUNK = "Chunk ID: 1c0b53\nWall time: 0.0512 seconds\nProcess exited with code 0\nOutput:\nhello\n"
ENVIRONMENT = (
    "<environment_context>\n  <cwd>/work</cwd>\n  <shell>bash</shell>\n  <current_date>2026-11-26</current_date>\n"
    "  <timezone>Etc/UTC</timezone>\n</environment_context>"
)
SYSTEM_INFORMATION = "Fix it.\n<system_information>\nLinux 6.18.44 #1 SMP x86_64\n</system_information>\n"
REMINDER = "# currentDate\nToday's date is 2026-11-26.\n\n"
PLATFORM = "# Environment\n - Platform: linux\n - OS Version: Linux 6.18.44\n - Model: m"
ENV = "<env>\n  Working directory: /work\n  Today's date: Thu Nov 26 2026\n</env>"

DIFFERENT: list[ChatMessage] = [
    *(said(role, "hello") for role in ("system", "developer", "user", "assistant", "tool")),
    said("user"),
    said("user", " hello"),
    said("user", "hello "),
    said("user", "hello\n"),
    said("user", "Hello"),
    said("user", "héllo"),
    said("user", "he\u0301llo"),
    said("user", "hello", name="a"),
    said("user", "hello", name="b"),
    said("user", text("hello", "world")),
    said("user", text("world", "hello")),
    said("user", (*text("hello"), IMAGE)),
    said("user", (IMAGE, *text("hello"))),
    said("user", (*text("hello"), OTHER_IMAGE)),
    said("user", ({"type": "text", "text": "hello", "more": 1},)),
    said("user", (*text("he"), IMAGE, *text("llo"))),
    said("user", json.dumps(text("hello"))),
    # places
    said("user", "/work/hello"),
    said("user", "/home/agent/hello"),
    said("user", "/workshop/hello"),
    said("user", "work/hello"),
    said("user", "\0P0;/hello"),
    said("user", "\0\0P0;/hello"),
    said("user", "\0P1;/hello"),
    said("user", "P0;/hello"),
    said("user", "-work/hello"),
    said("user", "/srv/work/hello"),
    said("user", "~/work/hello"),
    # what the model said
    said("assistant", "hello", call("{}")),
    said("assistant", "hello", call("{}", id="call_2")),
    said("assistant", "hello", call("{}", name="python")),
    said("assistant", None, call("{}")),
    said("assistant", None, call("{}"), call("{}", id="call_2")),
    said("assistant", None, call("{}", id="call_2"), call("{}")),
    said("assistant", None, call("")),
    said("assistant", None, call("{} x")),
    said("assistant", None, call('{"a": 1}')),
    said("assistant", None, call('{"a": "1"}')),
    said("assistant", None, call('{"a": 1.5}')),
    said("assistant", None, call('{"a": true}')),
    said("assistant", None, call('{"a": null}')),
    said("assistant", None, call('{"a": [1]}')),
    said("assistant", None, call('{"A": 1}')),
    said("assistant", None, call('{"a": 1, "b": 2}')),
    said("assistant", None, call('{"a": "x "}')),
    said("assistant", None, call('{"a": "x"}')),
    said("assistant", None, call('{"a": "/work"}')),
    said("assistant", None, call('"{}"')),
    said("assistant", " hello"),
    said("assistant", CHUNK),
    said("assistant", REMINDER),
    # results of tools
    said("tool", "hello", tool_call_id="call_1"),
    said("tool", "hello", tool_call_id="call_2"),
    said("tool", CHUNK),
    said("tool", CHUNK.replace("hello", "world")),
    said("tool", CHUNK.replace("code 0", "code 1")),
    said("tool", CHUNK.replace("exited with code 0", "running with session ID 1")),
    said("tool", CHUNK.replace("exited with code 0", "running with session ID 2")),
    said("tool", f"\n{CHUNK}"),
    said("tool", CHUNK.removeprefix("Chunk ID: 1c0b53\n")),
    said("tool", CHUNK.replace("1c0b53", "1c0b5")),
    said("tool", CHUNK.replace("0.0512 seconds", "0.0512 s")),
    said("tool", f"{CHUNK}{CHUNK}"),
    said("tool", CHUNK + CHUNK.replace("1c0b53", "2c0b53")),
    said("tool", ENVIRONMENT),
    said("tool", "\0V1;Process exited with code 0\nOutput:\nhello\n"),
    # what prompts say of their surroundings
    said("user", CHUNK),
    said("user", ENVIRONMENT),
    said("user", ENVIRONMENT.replace("bash", "zsh")),
    said("user", ENVIRONMENT.replace("UTC", "GMT")),
    said("user", ENVIRONMENT.replace("/work", "/tmp")),
    said("user", "<current_date>2026-11-26</current_date>"),
    said("user", "<current_date>2026-11-27</current_date>"),
    said("user", SYSTEM_INFORMATION),
    said("user", SYSTEM_INFORMATION.replace("Fix", "Mend")),
    said("user", SYSTEM_INFORMATION.replace("Linux", "Darwin")),
    said("user", REMINDER),
    said("user", f"{REMINDER}Go."),
    said("user", "Today's date is 2026-11-26."),
    said("user", "Today's date is 2026-11-27."),
    said("system", PLATFORM),
    said("system", PLATFORM.replace("linux", "darwin")),
    said("system", PLATFORM.replace("Model: m", "Model: n")),
    said("system", "OS Version: Linux 6.18.44"),
    said("system", ENV),
    said("system", ENV.replace("/work", "/tmp")),
    said("system", "Today's date: Thu Nov 26 2026"),
    said("system", "Today's date: Fri Nov 27 2026"),
]


def test_messages_that_differ_in_anything_never_share_a_digest() -> None:
    for one, other in combinations(DIFFERENT, 2):
        assert EVERY.digest(one) != EVERY.digest(other), (one, other)


def test_a_digest_is_short_and_the_same_in_every_process() -> None:
    assert EVERY.digest(said("user", "hello")) == "034ab5757000185b5764ffe9"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (said("assistant", "hello"), said("assistant", "hello \n\n")),
        (said("assistant", "hello"), said("assistant", "hello", reasoning_content="Greet.")),
        (said("assistant", None, call("{}")), said("assistant", "", call("{}"))),
        (said("assistant", None, call("{}")), said("assistant", " ", call(" {}\n"))),
        (
            said("assistant", None, call('{"b": 1.0, "a": "\\u00fc"}')),
            said("assistant", None, call('{"a":"ü","b":1}')),
        ),
        (said("user", "hello\nworld"), said("user", text("hello", "world"))),
        (said("user", ""), said("user", ())),
        (said("tool", CHUNK), said("tool", CHUNK.replace("1c0b53", "b910b4").replace("0.0512", "12.0"))),
        (said("user", ENVIRONMENT), said("user", ENVIRONMENT.replace("11-26", "11-27"))),
        (said("user", SYSTEM_INFORMATION), said("user", SYSTEM_INFORMATION.replace("6.18.44", "5.10"))),
        (said("user", REMINDER), said("user", REMINDER.replace("11-26", "11-27"))),
        (said("system", PLATFORM), said("system", PLATFORM.replace("6.18.44", "5.10"))),
        (said("system", ENV), said("system", ENV.replace("Thu Nov 26", "Fri Nov 27"))),
    ],
)
def test_what_two_starts_say_alike_is_the_same(one: ChatMessage, other: ChatMessage) -> None:
    assert EVERY.normalized(one) == EVERY.normalized(other)


def test_a_harness_loses_only_what_is_volatile_in_its_own_prompts() -> None:
    dates = said("user", ENVIRONMENT), said("user", ENVIRONMENT.replace("11-26", "11-27"))
    for kind in (MiniSweAgent, ClaudeCode, OpenCode):
        one, other = (Normalization(kind.volatile, PLACES).digest(each) for each in dates)
        assert one != other
    one, other = (Normalization(Codex.volatile, PLACES).digest(each) for each in dates)
    assert one == other


def test_starts_in_other_folders_are_the_same() -> None:
    """Claude Code names the folder of a project's notes by the project's path."""
    here = Normalization((), ("/tmp/a1/work", "/tmp/a1/home"))
    there = Normalization((), ("/tmp/b_2/work", "/tmp/b_2/home"))
    spoken = "In {0}/a.txt, '{0}' and {1}/.claude/projects/{2}/memory, not {0}s or x{0}.".format
    one = spoken("/tmp/a1/work", "/tmp/a1/home", "-tmp-a1-work")
    other = spoken("/tmp/b_2/work", "/tmp/b_2/home", "-tmp-b-2-work")
    fixed = re.compile(r"not .*")
    alike = [fixed.sub("", each) for each in (one, other)]
    assert here.digest(said("user", alike[0])) == there.digest(said("user", alike[1]))
    assert here.digest(said("user", one)) != there.digest(said("user", other))
    arguments = [json.dumps({"path": f"{place}/a.txt"}) for place in ("/tmp/a1/work", "/tmp/b_2/work")]
    one_call, other_call = (said("assistant", None, call(each)) for each in arguments)
    assert here.digest(one_call) == there.digest(other_call)


def test_the_whole_system_as_a_workspace_is_replaced_nowhere() -> None:
    normalization = Normalization((), ("/", "/root"))
    assert "\\u0000" not in normalization.normalized(said("user", "/etc/passwd and /"))
    assert Normalization((), ()).normalized(said("user", "/")) == normalization.normalized(said("user", "/"))


def tool(**fields: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    return {"type": "function", "function": {"name": "bash", "parameters": parameters, **fields}}


SEARCH = "Searches.\n - The current month is November 2026 - use this."


def test_tools_that_differ_in_anything_never_share_a_digest() -> None:
    offers: list[tuple[Iterable[dict[str, Any]], tuple[str, ...]]] = [
        ((), ()),
        ([tool()], ()),
        ([tool()], ("bash",)),
        ([tool(), tool()], ()),
        ([tool(name="sh")], ()),
        ([tool(description="Runs.")], ()),
        ([tool(description="Runs")], ()),
        ([tool(parameters={})], ()),
        ([tool(strict=True)], ()),
        ([tool(), tool(name="sh")], ()),
        ([tool(name="sh"), tool()], ()),
        ([tool(description=SEARCH)], ()),
        ([tool(description=SEARCH.replace("Searches", "Finds"))], ()),
    ]
    digests = [EVERY.digest_of_tools(tools, freeform) for tools, freeform in offers]
    assert len(set(digests)) == len(offers)
    later = SEARCH.replace("November", "December")
    assert EVERY.digest_of_tools([tool(description=later)]) == digests[-2]


TEXTS = st.text(alphabet=st.sampled_from("\0P0;V1/work-home.agent \n\"'{}[]"), max_size=12)


@given(TEXTS, TEXTS)
def test_texts_that_imitate_what_replaces_others_stay_apart(one: str, other: str) -> None:
    digests = [EVERY.digest(said("user", each)) for each in (one, other)]
    assert (digests[0] == digests[1]) == (one == other)
    pair = [EVERY.digest(said("user", (*text(each), IMAGE, *text(other)))) for each in (one, other)]
    assert (pair[0] == pair[1]) == (one == other)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda each: st.lists(each, max_size=3))
)
def test_arguments_are_the_same_however_they_are_written(value: Any) -> None:
    written = [
        json.dumps({"a": value, "b": 1}),
        json.dumps({"b": 1, "a": value}, indent=1, ensure_ascii=False),
    ]
    one, other = (EVERY.digest(said("assistant", None, call(each))) for each in written)
    assert one == other
    assert one != EVERY.digest(said("assistant", None, call(json.dumps({"a": [value], "b": 1}))))


def test_a_pattern_is_for_its_role_alone() -> None:
    of_tool = Normalization([Volatile("tool", re.compile("x+"))], ())
    assert of_tool.digest(said("tool", "x")) == of_tool.digest(said("tool", "xx"))
    assert of_tool.digest(said("user", "x")) != of_tool.digest(said("user", "xx"))
    assert of_tool.digest(said("tool", "x")) != of_tool.digest(said("tool", "\0V0;"))
