"""A parser of calls that a model writes on one line each, as `[CALL name {"key": "value"}]`."""

import re
from collections.abc import Sequence

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.json_text import decode_first, encode
from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall, parsed_call

OPENING = re.compile(r"\[CALL (?P<name>[\w-]+) ")


class BracketParser:
    ends_reasoning = "[CALL "

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        calls: list[ParsedCall] = []
        before: list[str] = []
        malformed = 0
        for line in text.split("\n"):
            end = 0
            while opening := OPENING.search(line, end):
                if (read := _call(line, opening)) is None:
                    malformed += 1
                    break
                if not calls:
                    before.append(line[end : opening.start()])
                call, end = read
                calls.append(call)
            if not calls:
                before.append(line[end:])
        if not calls:
            return ParsedAnswer(content=text, malformed=malformed)
        content = "\n".join(before).rstrip()
        return ParsedAnswer(content=content or None, calls=tuple(calls), malformed=malformed)


def _call(line: str, opening: re.Match[str]) -> tuple[ParsedCall, int] | None:
    """The call, and where it ends; None for one that can't be read."""
    try:
        arguments, end = decode_first(line, opening.end())
    except ValueError:
        return None
    if not isinstance(arguments, dict) or not line.startswith("]", end):
        return None
    return parsed_call(opening["name"], encode(arguments)), end + 1
