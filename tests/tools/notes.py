"""Tools as another package offers them: one that writes into the workspace, and one that only looks at it."""

from pathlib import Path
from typing import ClassVar

from pydantic import JsonValue

from clotho.plugin import GROUP, Plugin
from clotho.tools.results import text
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

NOTE = "/work/note"


class TakeNote(Tool):
    """It says nothing of what it changes, and offers no replay."""

    name = "take_note"
    toolset = "notes"
    description = "Write a note."
    parameters: ClassVar[dict[str, JsonValue]] = {
        "type": "object",
        "properties": {"note": {"type": "string"}},
        "required": ["note"],
    }

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        await context.sandbox.write_file(NOTE, arguments["note"].encode())
        return ToolOutcome(content=text(written=True))


class ReadNote(Tool):
    name = "read_note"
    toolset = "notes"
    changes_workspace = False
    description = "Read the note."
    parameters: ClassVar[dict[str, JsonValue]] = {"type": "object", "properties": {}}

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        found = await context.sandbox.read_file(NOTE, 1_000)
        return ToolOutcome(content=text(note=found.content.decode()))


PLUGIN = Plugin("notes", tools=(f"{__name__}:TakeNote", f"{__name__}:ReadNote"))


def installed(folder: Path) -> Path:
    """A folder for the path on which these are an installed package's tools."""
    package = folder / "notes-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: notes\nVersion: 1\n")
    (package / "entry_points.txt").write_text(f"[{GROUP}]\nnotes = {__name__}:PLUGIN\n")
    return folder
