"""The `write_file` tool: whole files."""

import asyncio
import posixpath

from clotho.tools import shell, write_once
from clotho.tools.files.lint import lint
from clotho.tools.files.paths import absolute_path, refuse_protected
from clotho.tools.results import answer
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

CREATED, PRESENT = b"created", b"present"


class WriteFile(Tool):
    name = "write_file"
    toolset = "file"
    called_by_code = True
    description = (
        "Write a whole file, replacing what was there and making missing directories. Use it rather than echo or "
        "a heredoc in the terminal; to change a part of a file use patch. The syntax of Python, JSON and TOML "
        "files is checked, and the finding is in the result."
    )
    parameters = object_schema(
        "path",
        "content",
        path=string("Absolute, relative or ~ path"),
        content=string("The whole content of the file"),
    )

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome:
        return await self.run(arguments, context)

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        path = absolute_path(arguments["path"], context)
        refuse_protected(path)
        parents = await write_once.recall(context, "parents") or await _look_at_parents(path, context)
        content = arguments["content"].encode()
        await context.sandbox.write_file(path, content, shell.last_command(context), context.job_key("write"))
        return answer(
            bytes_written=len(content),
            dirs_created=parents == CREATED,
            lint=await asyncio.to_thread(lint, path, arguments["content"]),
        )


async def _look_at_parents(path: str, context: CallContext) -> bytes:
    """Whether this call will make directories; recorded, since a second attempt finds those of the first."""
    folder = posixpath.dirname(path) or "."
    found = await context.sandbox.read_file(folder, 0, shell.last_command(context))
    if found.error == "is_directory":
        return PRESENT
    return await write_once.record(context, "parents", CREATED)
