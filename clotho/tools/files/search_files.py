"""The `search_files` tool: ripgrep in the sandbox, or grep and find where it isn't installed."""

import asyncio

from clotho.sandbox.backend import JobState
from clotho.tools import shell
from clotho.tools.files import search_script as search
from clotho.tools.files.paths import checked
from clotho.tools.results import problem, text
from clotho.tools.schemas import integer, object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

TIMEOUT_SECONDS = 60
MAX_RESULTS = 1_000
WILDCARDS = frozenset("*?[{")


class SearchFiles(Tool):
    name = "search_files"
    toolset = "file"
    called_by_code = True
    changes_workspace = False
    read_only = True
    description = (
        "Search in files, or for files: faster and tidier than grep, rg, find or ls in the terminal. "
        "target=content looks for a regular expression in files; target=files looks for file names that match a "
        "glob such as '*.py', the latest modified first. Hidden files are left out."
    )
    parameters = object_schema(
        "pattern",
        pattern=string("Regular expression, or glob for target=files"),
        target=string("Look into files, or at their names", one_of=("content", "files"), default="content"),
        path=string("File or directory to search", default="."),
        file_glob=string("Only look into files of such names, e.g. '*.py'"),
        limit=integer("Results shown at most", default=50, minimum=1),
        offset=integer("Results skipped", default=0, minimum=0),
        output_mode=string(
            "Matching lines, the paths of files that have some, or how many each has",
            one_of=("content", "files_only", "count"),
            default="content",
        ),
        context=integer("Lines shown before and after each match", default=0, minimum=0, maximum=100),
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        path = checked(arguments.get("path", "."))
        by_name = arguments.get("target", "content") == "files"
        mode = arguments.get("output_mode", "content")
        job = shell.job(
            context, "search", script=_script(arguments, path, by_name, mode), timeout=TIMEOUT_SECONDS
        )
        status = await shell.finish(job, context)
        output = (await context.sandbox.output(job.key)).decode(errors="replace")
        if status.state is JobState.TIMEOUT:
            return problem(f"The search took longer than {TIMEOUT_SECONDS} s: search a smaller directory")
        if status.exit_code == search.PATH_MISSING:
            return problem(f"Path not found: {path}", total_count=0)
        # each record has a NUL after its path: output without one is an error message
        if output and "\0" not in output:
            return problem(f"Search failed: {output.strip()[:500]}", total_count=0)
        return ToolOutcome(content=await asyncio.to_thread(_result, output, arguments, by_name, mode))


def _script(arguments: Arguments, path: str, by_name: bool, mode: str) -> str:
    pattern = arguments["pattern"]
    if by_name:
        return search.files_script(pattern if WILDCARDS & set(pattern) else f"*{pattern}*", path)
    around = arguments.get("context", 0) if mode == "content" else 0
    return search.content_script(pattern, path, arguments.get("file_glob"), mode, around)


def _result(output: str, arguments: Arguments, by_name: bool, mode: str) -> str:
    offset, limit = arguments.get("offset", 0), min(arguments.get("limit", 50), MAX_RESULTS)
    if by_name or mode == "files_only":
        return text(**search.files_result(search.found_files(output), offset, limit))
    if mode == "count":
        counts = search.found_counts(output)
        shown = dict(list(counts.items())[offset : offset + limit])
        return text(
            **search.paged({"total_count": sum(counts.values()), "counts": shown}, len(counts), offset, limit)
        )
    return text(**search.content_result(search.found_lines(output), offset, limit))
