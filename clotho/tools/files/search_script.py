"""Searching in the sandbox: the script that searches there, and its output as matches."""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from clotho.tools.files.paths import quoted

PATH_MISSING = 66
MAX_OUTPUT_BYTES = 2_000_000
BOUNDED = f"2>&1 | head -c {MAX_OUTPUT_BYTES}"
MAX_MATCH_CHARS = 500
MAX_LINE_BYTES = 2_000
"""Bytes of a line that leave the sandbox."""

HIDDEN = "'.?*'"
NUMBERED = re.compile(r"(\d+)([:-])(.*)", re.DOTALL)


@dataclass(frozen=True)
class Line:
    """A line found, or one around it."""

    path: str
    number: int
    text: str
    ordinal: int
    """Number of the match that the line is, or belongs to, from 0."""
    matched: bool


def content_script(pattern: str, path: str, glob: str | None, mode: str, context: int) -> str:
    """A script that prints the lines, files or counts of files that match a regular expression."""
    how = {"content": "-n", "files_only": "-l", "count": "-c"}[mode] + (f" -C {context}" if context else "")
    wanted = f"-e {shlex.quote(pattern)} --"
    only = f"-g {shlex.quote(glob)} -g '!.*'" if glob else ""
    return _either(
        path,
        # sorted: the pages of a search are cut from runs of their own, so each needs the same order
        f"rg --no-config --no-messages --color=never --no-heading --sort path -H --null {how} "
        f"--max-columns {MAX_LINE_BYTES} --max-columns-preview {only} {wanted} {quoted(path)} {BOUNDED}",
        # -P is closest to ripgrep's syntax, and some builds of grep lack it
        "{ syntax=-E; if printf a | grep -qP a 2>/dev/null; then syntax=-P; fi; "
        f"{_found(glob)} -print0 2>/dev/null | sort -z | "
        f"xargs -0 -r grep $syntax -HIsZ --color=never {how} {wanted} | cut -b -{MAX_LINE_BYTES}; }} {BOUNDED}",
    )


def files_script(glob: str, path: str) -> str:
    """A script that prints the files whose name matches, the latest modified first, each followed by NUL."""
    latest_first = "sort -zrn | cut -z -d ' ' -f 2-"
    return _either(
        path,
        f"{{ rg --no-config --no-messages --files --null -g {shlex.quote(glob)} -g '!.*' -- {quoted(path)} | "
        f"xargs -0 -r stat --printf '%.9Y %n\\0' -- | {latest_first}; }} {BOUNDED}",
        f"{{ {_found(glob.rpartition('/')[2])} -printf '%T@ %p\\0' 2>/dev/null | {latest_first}; }} {BOUNDED}",
    )


def _found(glob: str | None) -> str:
    """The find command that lists the files below "$@" that aren't hidden."""
    return f'find "$@" -name {HIDDEN} -prune -o -type f' + (f" -name {shlex.quote(glob)}" if glob else "")


def _either(path: str, with_ripgrep: str, without: str) -> str:
    return (
        f'export LC_ALL=C.UTF-8; set -- {quoted(path)}; [ -e "$1" ] || exit {PATH_MISSING}\n'
        # -mindepth 1: find would else prune a start that is hidden itself
        'if [ -d "$1" ]; then set -- "$1" -mindepth 1; fi\n'
        f"if command -v rg >/dev/null; then {with_ripgrep}; else {without}; fi"
    )


def found_lines(output: str) -> Iterator[Line]:
    """The lines of a search with numbers, in order."""
    matches, path, joined = 0, "", False
    for record in output.split("\n"):
        name, nul, rest = record.partition("\0")
        numbered = NUMBERED.match(rest)
        if not nul or not numbered:
            joined = False
            continue
        matched = numbered[2] == ":"
        joined = joined and name == path
        ordinal = matches if matched or not joined else matches - 1
        matches += matched
        path, joined = name, joined or matched
        yield Line(shown_path(name), int(numbered[1]), numbered[3][:MAX_MATCH_CHARS], ordinal, matched)


def found_counts(output: str) -> dict[str, int]:
    """Path -> number of matching lines."""
    records = (record.partition("\0") for record in output.split("\n"))
    return {
        shown_path(path): int(count)
        for path, nul, count in records
        if nul and count.isdigit() and count != "0"
    }


def found_files(output: str) -> list[str]:
    return [shown_path(path) for path in output.split("\0")[:-1]]


def shown_path(path: str) -> str:
    return path.removeprefix("./")


def content_result(lines: Iterable[Line], offset: int, limit: int) -> dict[str, Any]:
    """Matches `offset` to `offset + limit` with the lines around them."""
    total, shown = 0, []
    for line in lines:
        total += line.matched
        if offset <= line.ordinal < offset + limit:
            shown.append(line)
    matches = [{"path": line.path, "line": line.number, "content": line.text} for line in shown]
    return paged({"total_count": total, "matches": matches}, total, offset, limit)


def files_result(files: list[str], offset: int, limit: int) -> dict[str, Any]:
    fields = {"total_count": len(files), "files": files[offset : offset + limit]}
    return paged(fields, len(files), offset, limit)


def paged(fields: dict[str, Any], total: int, offset: int, limit: int) -> dict[str, Any]:
    if offset + limit >= total:
        return fields
    return {**fields, "truncated": True, "hint": f"Use offset={offset + limit} to see more."}
