"""The same weights are read alike under any name, by any renderer, and as vLLM reads them."""

import json
from pathlib import Path
from typing import Any

import pytest
from renderers.base import MODEL_RENDERER_MAP

from clotho.errors import InvalidInput
from clotho.models.messages import CallDefects
from clotho.models.rendering.renderer import ReadAnswer, Renderer, strip_or_none
from clotho.models.rendering.rendering import Rendering
from clotho.models.rendering.resolve import open_renderer
from clotho.models.tool_call_parsers import PARSERS, family_parser
from tests.unit.rendering.families import FAMILIES, Family, make_model
from tests.unit.rendering.rollouts import TOOLS, encode
from tests.unit.tool_call_parsers.test_against_vllm import DEVIATIONS, RECORDING

RECORDED = {"qwen": "hermes"}
"""The name under which a parser's answers were recorded, where it is another."""
PACKAGED = {name: family for name, family in FAMILIES.items() if family.packaged}
THINKING = {
    "qwen3_coder": Family(FAMILIES["qwen3"].tokens, FAMILIES["qwen3"].template, "qwen3_coder"),
    "qwen": FAMILIES["qwen3"],
    "glm45": FAMILIES["glm"],
    "kimi_k2": Family(f"{FAMILIES['kimi'].tokens} <think> </think>", FAMILIES["kimi"].template, "kimi_k2"),
}
THOUGHTS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vllm_thoughts.json").read_bytes())[
    "cases"
]
CLOSED_AFTER_A_MARK = ("mark named in the thought", "mark named before a call")
"""Unlike vLLM, a thought that only names the mark of a call ends at its closing tag."""


def read(renderer: Renderer, text: str, prompt: str = "") -> ReadAnswer:
    tools = TOOLS if prompt else RECORDING.tools
    return renderer.parse(
        encode(renderer, text), tools, prompt_ids=encode(renderer, prompt), turn_key="run/g0/r0/turn/0000"
    )


@pytest.mark.parametrize("name", PACKAGED)
def test_a_hand_coded_renderer_and_a_template_read_alike(models: Path, name: str) -> None:
    family = PACKAGED[name]
    packaged = open_renderer(str(models / name), renderer=family.packaged)
    template = open_renderer(str(models / name), tool_call_parser=family.parser)
    assert f"tool calls read by {family.parser}" in packaged.description
    cases = [case for case in RECORDING.cases if case.parser == RECORDED.get(family.parser, family.parser)]
    assert len(cases) >= 10
    for case in cases:
        answer = read(packaged, case.text)
        assert answer == read(template, case.text), case.case
        expected = DEVIATIONS.get(case.case, case.answer)
        if case.tools and expected is not None:
            calls = [(call.function.name, call.function.arguments) for call in answer.message.tool_calls]
            assert calls == [(call.name, call.arguments) for call in expected.calls], case.case


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    root = tmp_path_factory.mktemp("thinking")
    return {
        name: open_renderer(str(make_model(root / name, family)), tool_call_parser=name)
        for name, family in THINKING.items()
    }


@pytest.mark.parametrize("case", THOUGHTS, ids=lambda case: str(case["case"]))
def test_a_call_ends_an_open_think_block_as_in_vllm(
    thinking: dict[str, Renderer], case: dict[str, Any]
) -> None:
    name, _, kind = case["case"].partition(": ")
    message = read(thinking[name], case["text"], "<think>").message
    calls = [
        {"name": call.function.name, "arguments": call.function.arguments} for call in message.tool_calls
    ]
    if kind in CLOSED_AFTER_A_MARK and not (calls and calls == case["calls"]):
        assert "I could write" in (message.reasoning_content or "")
        assert calls if kind == "mark named before a call" else message.content == "Done."
        return
    assert calls == case["calls"]
    assert (message.content, message.reasoning_content) == (
        strip_or_none(case["content"]),
        strip_or_none(case["reasoning"]),
    )


def test_a_turn_that_ends_its_thought_with_a_call_is_extended(thinking: dict[str, Renderer]) -> None:
    """It isn't cut off within its think block, whatever its tokens are."""
    renderer = thinking["qwen3_coder"]
    call = "<tool_call>\n<function=terminal>\n</function>\n</tool_call><|im_end|>"
    prompt, ids = encode(renderer, "<|im_start|>assistant\n<think>\n"), encode(renderer, f"hm\n{call}")
    message = read(renderer, f"hm\n{call}", "<think>").message
    result = message.model_copy(update={"role": "tool", "tool_calls": (), "tool_call_id": "0"})
    assert renderer.bridge(prompt, ids, [result], TOOLS) is not None
    assert renderer.bridge(prompt, encode(renderer, "hm<|im_end|>"), [result], TOOLS) is None


def test_every_hub_name_with_a_parser_has_the_parser_of_its_folder() -> None:
    """A folder is known by its last name alone."""
    for name in MODEL_RENDERER_MAP:
        folder = f"/checkpoints/{name.rpartition('/')[2]}"
        assert Rendering().named(name).tool_call_parser == Rendering().named(folder).tool_call_parser, name
    assert family_parser("Qwen/Qwen3.5-35B-A3B") == "qwen3_coder"


def test_a_runs_manifest_says_what_reads_its_calls() -> None:
    named = Rendering(tokenizer="Qwen/Qwen3.5-4B").named("served-name")
    assert (named.tokenizer, named.tool_call_parser) == ("Qwen/Qwen3.5-4B", "qwen3_coder")
    assert Rendering(tool_call_parser="hermes").named("Qwen/Qwen3-8B").tool_call_parser == "hermes"
    assert Rendering().named("openai/gpt-oss-20b").tool_call_parser is None


def test_a_renderer_reads_its_own_format_where_it_is_asked_to(models: Path) -> None:
    own = open_renderer(str(models / "qwen3"), renderer="qwen3", tool_call_parser="renderer")
    assert "tool calls read by it" in own.description
    answer = read(own, '<tool_call>\n{"name": "terminal", "arguments": {}}\n</tool_call>')
    assert [call.function.name for call in answer.message.tool_calls] == ["terminal"]
    broken = read(own, '<tool_call>\n{"name": \n</tool_call>')
    assert not broken.message.tool_calls and broken.defects == CallDefects(malformed=1)
    with pytest.raises(InvalidInput, match="hand-coded renderer"):
        open_renderer(str(models / "qwen3"), tool_call_parser="renderer")
    assert "renderer" not in PARSERS
