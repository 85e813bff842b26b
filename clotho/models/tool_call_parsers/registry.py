"""Tool-call parsers by name, or of another package as `module:Class`, and the names that fit a family of models."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from clotho.errors import InvalidInput
from clotho.imported import imported
from clotho.models.tool_call_parsers.deepseek import DeepSeekV3Parser, DeepSeekV31Parser
from clotho.models.tool_call_parsers.glm import GlmParser
from clotho.models.tool_call_parsers.hermes import HermesParser
from clotho.models.tool_call_parsers.kimi_k2 import KimiK2Parser
from clotho.models.tool_call_parsers.llama_json import LlamaJsonParser
from clotho.models.tool_call_parsers.mistral import MistralParser
from clotho.models.tool_call_parsers.parser import ToolCallParser
from clotho.models.tool_call_parsers.qwen3_coder import Qwen3CoderParser

PARSERS: Mapping[str, ToolCallParser] = MappingProxyType(
    {
        "deepseek_v3": DeepSeekV3Parser(),
        "deepseek_v31": DeepSeekV31Parser(),
        "deepseek_v3_1": DeepSeekV31Parser(),
        "glm45": GlmParser(),
        "glm47": GlmParser(),
        "hermes": HermesParser(),
        "kimi_k2": KimiK2Parser(),
        "llama3_json": LlamaJsonParser(),
        "llama4_json": LlamaJsonParser(),
        "longcat": HermesParser("longcat_tool_call"),
        "mistral": MistralParser(),
        "qwen": HermesParser(ends_reasoning=True),
        "qwen3_coder": Qwen3CoderParser(),
    }
)

FAMILIES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"hermes", "hermes"),
        # a distilled model is named after two families, and which one's dialect it writes isn't said
        (r"distill", None),
        (r"qwen3[-_.]?coder|qwen3[._][5-9]", "qwen3_coder"),
        (r"qwen|qwq", "qwen"),
        (r"longcat", "longcat"),
        (r"(mis|minis|magis)tral|mixtral|(dev|code)stral|pixtral", "mistral"),
        (r"llama[-_.]?4", "llama4_json"),
        (r"llama[-_.]?3", "llama3_json"),
        (r"deepseek[-_.]?v3[-_.]1(?!\d)", "deepseek_v3_1"),
        (r"deepseek[-_.]?(v3(?![-_.]?\d(?!\d))|r1)", "deepseek_v3"),
        (r"kimi[-_.]?k2", "kimi_k2"),
        (r"glm[-_.]?(4[._][7-9]|[5-9])", "glm47"),
        (r"glm[-_.]?4([._][56]|moe)", "glm45"),
    )
)
"""Names and architectures in lower case: the first pattern found decides, fine-tunes before what they tune."""

SHARED_ARCHITECTURES = frozenset({"llamaforcausallm", "deepseekv3forcausallm"})
"""Used by families with different dialects, so that they say nothing."""


def parser(name: str) -> ToolCallParser:
    """The parser of that name: one of PARSERS, or a class `module:Class`, constructed without arguments.

    Raises InvalidInput for an unknown name, a class that can't be imported, and one that is no parser.
    """
    if name in PARSERS:
        return PARSERS[name]
    if ":" not in name:
        raise InvalidInput(
            f"tool-call parser {name!r} is unknown; use one of {', '.join(PARSERS)}, or module:Class"
        )
    found = imported(name, "the tool-call parser")()
    if not isinstance(found, ToolCallParser):
        raise InvalidInput(f"{name} is no tool-call parser: it needs parse() and ends_reasoning")
    return found


def family_parser(model: str, architectures: Iterable[str] = ()) -> str | None:
    """The name of the parser for `model`'s family, by its name or else by its architectures, or None."""
    distinct = (each for each in map(str.lower, architectures) if each not in SHARED_ARCHITECTURES)
    for known in (model.lower(), *distinct):
        for pattern, name in FAMILIES:
            if pattern.search(known):
                return name
    return None


def model_name(tokenizer: str) -> str:
    """A hub's name as it is; a folder's own name, since those above it say nothing about the model."""
    folder = tokenizer.startswith(("/", ".", "~")) or Path(tokenizer).is_dir()
    return Path(tokenizer).resolve().name if folder else tokenizer
