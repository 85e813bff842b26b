"""The `read_file` tool: text files by windows of numbered lines."""

import asyncio
import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from clotho.sandbox.backend import FileContent
from clotho.tools import shell
from clotho.tools.files.paths import absolute_path, quoted
from clotho.tools.files.text_file import MARK, is_binary
from clotho.tools.results import answer, problem
from clotho.tools.schemas import integer, object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

MAX_LINES = 2_000
DEFAULT_LINES = 500
MAX_CHARS = 100_000
MAX_FILE_BYTES = 20_000_000
MOST_SIMILAR, SIMILAR = 5, 0.4
LONGEST_NAME = 255
LISTING = 100_000
MAX_LINE_CHARS = 2_000
MAX_LINE_BYTES = 4 * (MAX_LINE_CHARS + 2)
"""Bytes of a line that are decoded: more characters than are shown."""
COUNTED_BYTES = 1 << 16
CUT = "... [truncated]"
IMAGES = frozenset({".bmp", ".gif", ".ico", ".jpeg", ".jpg", ".png", ".webp"})

WORDS = {
    "not_found": "File not found",
    "is_directory": "It is a directory: use search_files or the terminal to list it",
    "not_regular": "Not a regular file",
    "permission_denied": "Permission denied",
    "name_too_long": "File name too long",
    "inaccessible": "It can't be read",
    "outside": "The path leads out of the agent's folders",
    "too_large": f"Over {MAX_FILE_BYTES:,} bytes: use head, tail or sed in the terminal",
}


class ReadFile(Tool):
    name = "read_file"
    toolset = "file"
    called_by_code = True
    changes_workspace = False
    read_only = True
    unlimited_result = True
    description = (
        "Read a text file with line numbers, in the form 'number|text'. Use it rather than cat, head or tail in "
        f"the terminal. For long files give offset and limit; at most {MAX_LINES} lines and {MAX_CHARS:,} "
        "characters at a time. A path that doesn't exist is answered with similar ones."
    )
    parameters = object_schema(
        "path",
        path=string("Absolute, relative or ~ path"),
        offset=integer("First line, from 1", default=1, minimum=1),
        limit=integer(f"Lines to read, at most {MAX_LINES}", default=DEFAULT_LINES, minimum=1),
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        path = absolute_path(arguments["path"], context)
        file = await context.sandbox.read_file(path, MAX_FILE_BYTES, shell.last_command(context))
        if file.error == "not_found":
            similar = await _similar(arguments["path"], context)
            return problem(f"{WORDS['not_found']}: {arguments['path']}", similar_files=similar)
        if file.error is not None:
            return problem(f"{arguments['path']}: {WORDS[file.error]}", file_size=file.size)
        return await asyncio.to_thread(_shown, file, arguments)


@dataclass(frozen=True)
class Window:
    """Lines `first` to `last` of `total`, numbered from 1."""

    content: str
    first: int
    last: int
    total: int


def window(content: bytes, offset: int, limit: int) -> Window:
    """`limit` lines of the text `content` from line `offset` on; no other line is decoded."""
    total = content.count(b"\n") + (content[-1:] not in (b"", b"\n"))
    start, lines = _line_start(content, offset - 1), list[str]()
    for _ in range(min(limit, total - offset + 1)):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        lines.append(_cut(content[start : min(end, start + MAX_LINE_BYTES)]))
        start = end + 1
    return Window(
        content="\n".join(f"{number:6d}|{line}" for number, line in enumerate(lines, start=offset)),
        first=offset,
        last=offset + len(lines) - 1,
        total=total,
    )


def _line_start(content: bytes, lines: int) -> int:
    """The offset at which the text goes on after `lines` lines."""
    start = 0
    while lines and start < len(content):
        # by blocks: to count is far faster than to find each line end
        found = content.count(b"\n", start, start + COUNTED_BYTES)
        if found >= lines:
            break
        start, lines = start + COUNTED_BYTES, lines - found
    for _ in range(lines):
        start = content.find(b"\n", start) + 1
        if start == 0:
            return len(content)
    return start


def _cut(content: bytes) -> str:
    line = content.decode(errors="replace").removesuffix("\r")
    return line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + CUT


def _shown(file: FileContent, arguments: Arguments) -> ToolOutcome:
    image = PurePosixPath(arguments["path"]).suffix.lower() in IMAGES
    if image or is_binary(file.content):
        kind = "an image" if image else "binary"
        return problem(
            f"The file is {kind} and can't be shown as text",
            file_size=file.size,
            is_binary=True,
            is_image=image,
        )
    offset, limit = arguments.get("offset", 1), min(arguments.get("limit", DEFAULT_LINES), MAX_LINES)
    part = window(file.content.removeprefix(MARK.encode()), offset, limit)
    if len(part.content) > MAX_CHARS:
        return problem(
            f"These lines come to {len(part.content):,} characters, over the maximum of {MAX_CHARS:,}: "
            "read fewer with offset and limit",
            total_lines=part.total,
            file_size=file.size,
        )
    fields: dict[str, Any] = {
        "content": part.content,
        "total_lines": part.total,
        "file_size": file.size,
        "truncated": part.last < part.total,
        "is_binary": False,
        "is_image": False,
    }
    if part.first > max(part.total, 1):
        fields["hint"] = f"The file has {part.total} lines"
    elif part.last < part.total:
        fields["hint"] = (
            f"Use offset={part.last + 1} to go on (lines {part.first}-{part.last} of {part.total})"
        )
    return answer(**fields)


async def _similar(path: str, context: CallContext) -> list[str]:
    """Files in the folder of `path` whose names are like its own."""
    folder, name = posixpath.split(path)
    # head: an agent may have made millions of files
    script = f"ls -1A -- {quoted(folder or '.')} 2>/dev/null | head -c {LISTING}"
    job = shell.job(context, "similar", script=script, timeout=10)
    await shell.finish(job, context)
    names = (await context.sandbox.output(job.key)).decode(errors="replace").splitlines()
    close = await asyncio.to_thread(similar_names, name, names)
    return [posixpath.join(folder, each) for each in close]


def similar_names(name: str, names: Sequence[str]) -> list[str]:
    """The most similar of `names` to `name`, by the pairs of characters that they share: in linear time."""
    wanted = _pairs(name)
    likeness = {
        each: 2 * (wanted & (pairs := _pairs(each))).total() / (wanted.total() + pairs.total())
        for each in names
    }
    close = sorted((each for each in likeness if likeness[each] >= SIMILAR), key=lambda each: -likeness[each])
    return close[:MOST_SIMILAR]


def _pairs(name: str) -> Counter[str]:
    """Pairs of neighbouring characters in the name, its two ends included."""
    marked = f"^{name.lower()[:LONGEST_NAME]}$"
    return Counter(map("".join, pairwise(marked)))
