"""What servers send: definitions of tools, and results of calls as text."""

import json
from typing import TYPE_CHECKING, Any

from clotho.plugins.mcp.session import MOST_TOOLS, Definition

if TYPE_CHECKING:
    from mcp_types import CallToolResult
    from mcp_types import Tool as ServerTool

MOST_DESCRIPTION_CHARS = 8_000
MOST_BLOCKS = 1_000
"""Blocks of an answer that are validated one by one, at 10 µs each."""


def definition_of(tool: "ServerTool") -> Definition:
    return Definition(
        name=tool.name,
        description=(tool.description or tool.title or tool.name)[:MOST_DESCRIPTION_CHARS],
        parameters={"properties": {}, **tool.input_schema},
    )


def text_of(result: "CallToolResult") -> str:
    """The text that a result holds; what is no text is named, with its size."""
    parts = [
        _part(block.model_dump(mode="json", by_alias=True, exclude_none=True)) for block in result.content
    ]
    # servers that send structured content repeat it as text for older clients
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def shorten(result: dict[str, Any]) -> None:
    """Join a result's blocks into one where they are too many to validate, and drop tools beyond the bound."""
    blocks, tools = result.get("content"), result.get("tools")
    if isinstance(blocks, list) and len(blocks) > MOST_BLOCKS:
        result["content"] = [{"type": "text", "text": "\n".join(map(_part, blocks))}]
    if isinstance(tools, list):
        # one more stays: by it the reader sees that there are too many
        del tools[MOST_TOOLS + 1 :]


def _part(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return uri
        case {"data": str(data), "mimeType": str(kind)}:
            return f"[{kind}, {len(data) * 3 // 4} bytes, not shown]"
        case {"type": str(kind)}:
            return f"[{kind}, not shown]"
    return "[something, not shown]"
