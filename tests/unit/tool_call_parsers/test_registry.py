"""Parsers by name and by family, and the ids of calls."""

import re

import pytest

from clotho.errors import InvalidInput
from clotho.models.messages import FunctionCall
from clotho.models.tool_call_parsers import ParsedAnswer, ParsedCall, family_parser, parser
from clotho.models.tool_call_parsers.registry import PARSERS
from examples.how_to.bracket_parser import BracketParser

NAMES = {
    *("hermes", "qwen", "longcat", "mistral", "llama3_json", "llama4_json", "qwen3_coder", "deepseek_v3"),
    *("deepseek_v3_1", "deepseek_v31", "kimi_k2", "glm45", "glm47"),
}


def test_the_thirteen_names() -> None:
    assert set(PARSERS) == NAMES


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="'herpes' is unknown") as refused:
        parser("herpes")
    assert all(name in str(refused.value) for name in NAMES)


def test_a_class_of_another_package_is_named_by_its_module() -> None:
    assert isinstance(parser("examples.how_to.bracket_parser:BracketParser"), BracketParser)


@pytest.mark.parametrize(
    "name", ["nowhere.to.be:Found", "examples.how_to.bracket_parser:Missing", "decimal:Decimal"]
)
def test_what_is_no_parser_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name}.*(can't be imported|is no tool-call parser)"):
        parser(name)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen"),
        ("Qwen/Qwen3-8B", "qwen"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_coder"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
        ("NousResearch/Hermes-2-Pro-Mistral-7B", "hermes"),
        ("meituan-longcat/LongCat-Flash-Chat", "longcat"),
        ("mistralai/Devstral-Small-2507", "mistral"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3_json"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_json"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek_v3_1"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", None),
        ("moonshotai/Kimi-K2.5", "kimi_k2"),
        ("zai-org/GLM-4.6", "glm45"),
        ("zai-org/GLM-4.7-Flash", "glm47"),
        ("THUDM/glm-4-9b-chat", None),
        ("openai/gpt-oss-20b", None),
    ],
)
def test_family_by_name(model: str, name: str | None) -> None:
    assert family_parser(model) == name


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("Qwen2ForCausalLM", "qwen"),
        ("Qwen3_5MoeForConditionalGeneration", "qwen3_coder"),
        ("Llama4ForConditionalGeneration", "llama4_json"),
        ("Glm4MoeForCausalLM", "glm45"),
        ("KimiK25ForConditionalGeneration", "kimi_k2"),
        ("LlamaForCausalLM", None),
        ("DeepseekV3ForCausalLM", None),
    ],
)
def test_family_by_architecture(architecture: str, name: str | None) -> None:
    assert family_parser("/checkpoints/step-100", [architecture]) == name


def test_ids_derive_from_the_turn() -> None:
    listed = ParsedCall(function=FunctionCall(name="terminal", arguments="{}"))
    answer = ParsedAnswer(content=None, calls=(listed, listed, listed.model_copy(update={"id": "own:0"})))
    first, second, own = (call.id for call in answer.tool_calls("run/g000000/r0/turn/0001"))
    assert own == "own:0"
    assert first != second
    assert all(re.fullmatch("[0-9A-Za-z]{9}", id) for id in (first, second))
    assert [call.id for call in answer.tool_calls("run/g000000/r0/turn/0001")] == [first, second, own]
    assert answer.tool_calls("run/g000000/r1/turn/0001")[0].id != first
