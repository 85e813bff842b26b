"""Truncates long tool results: the whole goes to a file in the sandbox, the model is shown the beginning.

`clotho/tools/dispatch.py` applies it to the result of every tool; output of commands was truncated in its middle
before (`clotho/tools/output.py`).

The limits are in `ToolSettings` (`clotho/tools/tool.py`). A result over its tool's limit, or one with which the
results of its turn come to more than the turn's limit, is written to a file in the sandbox, and the model is shown
where, how large, and how it begins. A result is final once journalled, so a turn's limit is kept by counting: each
call is told how many characters the earlier ones of its turn came to, and calls that run side by side have equal
shares of what is left. A result no longer than the block that would stand for it is never spilled, so a turn may
pass its limit by at most one block per call.
"""

import json
import re

from clotho.errors import FileRefused
from clotho.tools.tool import CallContext, Tool, ToolSettings
from clotho.untrusted import Unreadable, in_thread_if_long, load_json

SPILL_DIRECTORY = "/tmp/clotho-results"
UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")
NAME_LIMIT = 64
BLOCK_OVERHEAD = 500
"""Characters of a block beside its preview, at most."""


def exceeds(content: str, tool: Tool, settings: ToolSettings, turn_chars: int) -> bool:
    """Whether `content` must be spilled after `turn_chars` characters of earlier results of its turn."""
    if len(content) <= settings.preview_chars + BLOCK_OVERHEAD:
        return False
    # read_file has a bound of its own: in a file, its result would only have the model call read_file again.
    limit = settings.result_chars.get(tool.name, None if tool.unlimited_result else settings.max_result_chars)
    return (limit is not None and len(content) > limit) or turn_chars + len(content) > settings.max_turn_chars


async def spill(content: str, tool: Tool, context: CallContext) -> str:
    """Write `content` to a file in the rollout's sandbox and return the block that stands for it.

    Without a sandbox, or room in it, the result is cut to its preview.
    """
    text = await in_thread_if_long(len(content), unfolded, content)
    path = await _kept(text, context) if tool.sandboxed else None
    return block(text, path, context.settings.preview_chars)


def unfolded(content: str) -> str:
    """A JSON object with its texts as lines, which read_file can show part by part; anything else as it is."""
    try:
        fields = load_json(content)
    except Unreadable:
        return content
    if not isinstance(fields, dict):
        return content
    shown = (
        (k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, indent=1))
        for k, v in fields.items()
    )
    return "\n".join(f"{name}:\n{value}" if "\n" in value else f"{name}: {value}" for name, value in shown)


async def _kept(content: str, context: CallContext) -> str | None:
    path = f"{SPILL_DIRECTORY}/{file_name(context)}"
    try:
        return await context.sandbox.write_file(path, content.encode())
    except FileRefused:
        return None


def file_name(context: CallContext) -> str:
    """The call's id as a file name, made safe, and unique where a server uses an id twice."""
    # the id is the model server's text: it may have slashes or thousands of characters
    safe = UNSAFE_IN_NAME.sub("_", context.tool_call_id)[:NAME_LIMIT]
    return f"{safe}-{context.call_key[:8]}.txt"


def block(content: str, path: str | None, preview_chars: int) -> str:
    """The preview that replaces `content`; `path` is None where the rest is not kept."""
    preview = content[:preview_chars]
    # whole lines, unless that would cost half of the preview
    cut = preview.rfind("\n")
    if cut > preview_chars // 2:
        preview = preview[: cut + 1]
    kept = (
        f"Full output saved to: {path}\nUse read_file with offset and limit on that path to see the rest."
        if path
        else "The rest was not kept: ask for less at a time."
    )
    kilobytes = len(content.encode()) / 1024
    return (
        "<persisted-output>\n"
        f"This tool result was too large ({len(content):,} characters, {kilobytes:.1f} KB).\n"
        f"{kept}\n\n"
        f"Preview (first {len(preview):,} characters):\n{preview}\n...\n"
        "</persisted-output>"
    )
