"""Tool calls found in a model's text, one dialect per file.

Every parser agrees with the parser of the same name in vLLM 0.32, including what that leaves out, except where
its docstring says otherwise. The differences follow one rule: a call that can be read is read as it was
written, and nothing that a model writes is an error. So everywhere, unlike in vLLM,

- JSON that can't be read (nested too deeply, numbers of thousands of digits) is malformed, never an exception;
- escapes of half a character (a lone surrogate) stay escapes in arguments.
"""

from clotho.inference.tool_call_parsers.base import ParsedAnswer, ParsedCall, ToolCallParser
from clotho.inference.tool_call_parsers.registry import family_parser, parser

__all__ = ["ParsedAnswer", "ParsedCall", "ToolCallParser", "family_parser", "parser"]
