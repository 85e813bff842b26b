"""Tool calls found in a model's text, one dialect per file.

Every parser answers as the parser of the same name in vLLM 0.32 does, also where that leaves text out, except
that a call which can be read is read, and as it was written. All differences:

- one malformed block of the hermes dialect (hermes, qwen, longcat) stays in the content and costs only itself,
  not the other calls;
- a closing tag within the JSON of that dialect doesn't end it;
- arguments that are JSON text already (hermes, qwen, longcat, llama3_json, llama4_json) aren't encoded again;
- a block without a name in its place (qwen3_coder, glm45, glm47) isn't given one from its arguments;
- half a character, which JSON can escape but UTF-8 can't hold, stays an escape;
- nothing that a model writes raises: JSON nested more than 100 deep, or with numbers too long for the
  interpreter, is malformed.

`ParsedAnswer.defects` counts the calls that weren't run, or not as they were written.
"""

from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall, ToolCallParser
from clotho.models.tool_call_parsers.registry import PARSERS, family_parser, model_name, parser

__all__ = ["PARSERS", "ParsedAnswer", "ParsedCall", "ToolCallParser", "family_parser", "model_name", "parser"]
