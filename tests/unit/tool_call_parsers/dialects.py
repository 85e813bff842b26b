"""Calls as models of each family write them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Arguments = Mapping[str, object]
Calls = Sequence[tuple[str, Arguments]]


@dataclass(frozen=True)
class Dialect:
    render: Callable[[Calls], str]
    markers: tuple[str, ...]
    keeps_white_space: bool = False
    """Whether content beside calls is given as written."""
    drops_blank: bool = False
    """Whether there is no content where only white space stands beside calls, which is kept otherwise."""
    argument_text: bool = False
    """Arguments are bare text: only text arguments come back without a schema."""
    opens_with_brace: bool = False
    """Nothing but a brace marks a call."""


def _json_calls(
    opening: str, closing: str, separator: str = "", arguments: str = "arguments"
) -> Callable[[Calls], str]:
    def render(calls: Calls) -> str:
        written = (json.dumps({"name": name, arguments: values}) for name, values in calls)
        return separator.join(f"{opening}{call}{closing}" for call in written)

    return render


def _mistral(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(values)}" for name, values in calls)


def _mistral_array(calls: Calls) -> str:
    return f"[TOOL_CALLS]{json.dumps([{'name': name, 'arguments': values} for name, values in calls])}"


def _qwen3_coder(calls: Calls) -> str:
    return "\n".join(
        f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
        + "</function>\n</tool_call>"
        for name, values in calls
    )


def _glm(calls: Calls) -> str:
    return "\n".join(
        f"<tool_call>{name}\n"
        + "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in values.items()
        )
        + "</tool_call>"
        for name, values in calls
    )


def _kimi_k2(calls: Calls) -> str:
    written = (
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{json.dumps(values)}"
        for index, (name, values) in enumerate(calls)
    )
    return (
        "<|tool_calls_section_begin|>"
        + "".join(f"{call}<|tool_call_end|>" for call in written)
        + "<|tool_calls_section_end|>"
    )


def _deepseek(between: str, before: str = "", after: str = "") -> Callable[[Calls], str]:
    def render(calls: Calls) -> str:
        written = (
            f"<｜tool▁call▁begin｜>{before}{name}{between}{json.dumps(values)}{after}<｜tool▁call▁end｜>"
            for name, values in calls
        )
        return "<｜tool▁calls▁begin｜>" + "\n".join(written) + "<｜tool▁calls▁end｜>"

    return render


SEPARATOR = "<｜tool▁sep｜>"
HERMES = Dialect(
    _json_calls("<tool_call>\n", "\n</tool_call>", "\n"),
    ("<tool_call>", "</tool_call>"),
    keeps_white_space=True,
)
LLAMA = Dialect(
    _json_calls("", "", "; ", "parameters"), ("<|python_tag|>", "{", "}", ";"), opens_with_brace=True
)
GLM = Dialect(
    _glm,
    ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    argument_text=True,
)
DEEPSEEK_MARKERS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    SEPARATOR,
)
DEEPSEEK_V3_1 = Dialect(_deepseek(SEPARATOR), DEEPSEEK_MARKERS, keeps_white_space=True)

DIALECTS: Mapping[str, tuple[Dialect, ...]] = {
    "hermes": (HERMES,),
    "qwen": (HERMES,),
    "longcat": (
        Dialect(
            _json_calls("<longcat_tool_call>", "</longcat_tool_call>"),
            ("<longcat_tool_call>", "</longcat_tool_call>"),
            keeps_white_space=True,
        ),
    ),
    "llama3_json": (LLAMA,),
    "llama4_json": (LLAMA,),
    "mistral": (
        Dialect(_mistral, ("[TOOL_CALLS]", "[ARGS]", "{", "[")),
        Dialect(_mistral_array, ("[TOOL_CALLS]", "[{", "}]"), keeps_white_space=True, drops_blank=True),
    ),
    "qwen3_coder": (
        Dialect(
            _qwen3_coder,
            (
                "<tool_call>",
                "</tool_call>",
                "<function=",
                "</function>",
                "<parameter=",
                "</parameter>",
                ">",
                "<think>",
            ),
            argument_text=True,
        ),
    ),
    "glm45": (GLM,),
    "glm47": (GLM,),
    "kimi_k2": (
        Dialect(
            _kimi_k2,
            (
                "<|tool_calls_section_begin|>",
                "<|tool_calls_section_end|>",
                "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
                ":0",
            ),
            keeps_white_space=True,
            drops_blank=True,
        ),
    ),
    "deepseek_v3": (
        Dialect(
            _deepseek("\n```json\n", f"function{SEPARATOR}", "\n```"),
            (*DEEPSEEK_MARKERS, "\n```json\n", "\n```", "\n"),
            keeps_white_space=True,
        ),
    ),
    "deepseek_v3_1": (DEEPSEEK_V3_1,),
    "deepseek_v31": (DEEPSEEK_V3_1,),
}
