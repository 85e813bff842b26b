"""Two tools: one that looks at a file of the sandbox, and one that changes it."""

import shlex

from clotho.plugin import Plugin
from clotho.sandbox.backend import JobState
from clotho.tools import shell
from clotho.tools.results import answer, problem
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

PLUGIN = Plugin("lines", tools=(f"{__name__}:CountLines", f"{__name__}:SortLines"))
SECONDS = 30.0
PARAMETERS = object_schema("path", path=string("The file"))


class CountLines(Tool):
    name = "count_lines"
    toolset = "lines"
    changes_workspace = False
    description = "Count the lines of a file."
    parameters = PARAMETERS

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        last_command = shell.last_command(context)  # relative paths start in its directory
        found = await context.sandbox.read_file(arguments["path"], 1 << 20, last_command)
        if found.error is not None:
            return problem(f"{arguments['path']}: {found.error}")
        return answer(lines=len(found.content.splitlines()))


class SortLines(Tool):
    name = "sort_lines"
    toolset = "lines"
    description = "Sort the lines of a file, in place."
    parameters = PARAMETERS

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        path = shlex.quote(arguments["path"])
        job = shell.job(context, "sort", script=f"sort -o {path} -- {path}", timeout=SECONDS)
        status = await shell.finish(job, context)
        if status.state is not JobState.EXITED or status.exit_code != 0:
            output = await context.sandbox.output(job.key)
            return problem(output.decode(errors="replace").strip() or f"sort ended: {status.state}")
        return answer(sorted=True)

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome:
        return await self.run(arguments, context)
