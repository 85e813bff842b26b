"""Calls that aren't run as written: each dialect counts them, whatever becomes of their text."""

import json

import pytest

from clotho.models.messages import CallDefects, ToolSchema
from clotho.models.tool_call_parsers import parser

TOOLS: list[ToolSchema] = [
    {
        "type": "function",
        "function": {"name": "terminal", "parameters": {"type": "object", "properties": {"command": {}}}},
    }
]
GLM = "<tool_call>terminal\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>"
CODER = "<tool_call>\n<function=terminal>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.terminal:0<|tool_call_argument_begin|>"
    '{"command": "ls"}<|tool_call_end|><|tool_calls_section_end|>'
)
V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>terminal\n```json\n{}\n```<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>"
)
MARKED = '[TOOL_CALLS][{"name": "terminal", "arguments": {}}, 5]'


@pytest.mark.parametrize("name", ["hermes", "qwen", "longcat", "glm45", "qwen3_coder", "kimi_k2", "mistral"])
def test_an_answer_without_calls_has_no_defects(name: str) -> None:
    assert parser(name).parse("2 < 3 and {} is empty", TOOLS).defects.total == 0


@pytest.mark.parametrize(
    ("name", "text", "arguments", "defects"),
    [
        pytest.param("glm45", GLM, {"command": "ls"}, {}, id="glm whole"),
        pytest.param("glm45", GLM[:40], {}, {"truncated": 1}, id="glm cut in a key"),
        pytest.param("glm45", GLM[:-12], {"command": "ls"}, {"truncated": 1}, id="glm without its end"),
        pytest.param(
            "glm47",
            GLM.replace("ls</arg_value>", "ls <arg_key> </arg_value>"),
            {"command": "ls <arg_key> "},
            {},
            id="glm with a tag in a value",
        ),
        pytest.param("glm45", GLM.replace("terminal", "rm"), None, {"unoffered": 1}, id="glm not offered"),
        pytest.param("glm45", "<tool_call>\n</tool_call>", None, {"malformed": 1}, id="glm without a name"),
        pytest.param("qwen3_coder", CODER, {"command": "ls"}, {}, id="coder whole"),
        pytest.param("qwen3_coder", CODER[:58], {}, {"truncated": 1}, id="coder cut in a value"),
        pytest.param(
            "qwen3_coder",
            CODER.replace("</parameter>", ""),
            {},
            {"truncated": 1},
            id="coder with a value that doesn't end",
        ),
        pytest.param(
            "qwen3_coder", "<tool_call>\nls\n</tool_call>", None, {"malformed": 1}, id="coder no function"
        ),
        pytest.param(
            "qwen3_coder", "<tool_call>\nls", None, {"malformed": 1}, id="coder cut before its name"
        ),
        pytest.param("kimi_k2", KIMI, {"command": "ls"}, {}, id="kimi whole"),
        pytest.param("kimi_k2", KIMI[:102], '{"comma', {"truncated": 1}, id="kimi cut in its arguments"),
        pytest.param("deepseek_v3", V3, {}, {}, id="v3 whole"),
        pytest.param(
            "deepseek_v3", V3.replace("{}\n```", "{}```"), None, {"malformed": 1}, id="v3 malformed"
        ),
        pytest.param("mistral", MARKED, {}, {"malformed": 1}, id="mistral beside a good one"),
        pytest.param("llama3_json", '{"name": "terminal"', None, {"malformed": 1}, id="llama cut off"),
    ],
)
def test_what_is_wrong_is_counted(name: str, text: str, arguments: object, defects: dict[str, int]) -> None:
    answer = parser(name).parse(text, TOOLS)
    assert answer.defects == CallDefects(**defects)
    if arguments is None:
        assert not answer.calls
    else:
        (call,) = answer.calls
        written = call.function.arguments
        assert written == arguments or json.loads(written) == arguments


def test_defects_are_said_in_words() -> None:
    assert str(CallDefects(malformed=1, beyond_limit=36)) == "1 malformed, 36 beyond limit"
