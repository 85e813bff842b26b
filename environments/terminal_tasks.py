"""Multi-step terminal tasks for a capable model, with partial credit that the agent's files can't talk it into.

Files are read as data and judged here, in the worker. Where the agent's code must run, it runs in a process of its
own: what that prints is data too.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext

LONGEST_ANSWER = 10_000


@dataclass(frozen=True)
class Task:
    """A prompt, the files it starts from, and what tells which criteria are met."""

    prompt: str
    files: Mapping[str, str]
    check: Callable[[ToolContext], dict[str, bool]]


BUGGY = """\
def median(values):
    values.sort()
    middle = len(values) // 2
    return values[middle]
"""

CALL_SECONDS = 60
"""Time for calls of the agent's code."""
CALL_MEDIAN = """\
import json, sys
from stats import median
for given in json.loads(sys.argv[1]):
    print(json.dumps([median(given), given]))
"""


def check_median(ctx: ToolContext) -> dict[str, bool]:
    """Check medians of inputs that the agent's code hasn't seen, so that it has to compute them."""
    odd, even = [[5, 9, 4], [7], [8, 1, 9, 2, 6]], [[5, 9, 4, 8], [3, 1]]
    medians = [5, 7, 6, 6.5, 2]
    call = f"timeout {CALL_SECONDS} python3 -c {shlex.quote(CALL_MEDIAN)} {shlex.quote(json.dumps([*odd, *even]))}"
    ran = ctx.terminal(f"cd /work && $CLOTHO_AS_AGENT {call} 2>/dev/null")
    lines = [parsed(line) for line in ran["output"][:LONGEST_ANSWER].splitlines()]
    answers = [line if isinstance(line, list) and len(line) == 2 else [None, None] for line in lines]
    answers = [*answers, *[[None, None]] * len(medians)][: len(medians)]
    right = [answer[0] == median for answer, median in zip(answers, medians, strict=True)]
    unchanged = [answer[1] == given for answer, given in zip(answers, [*odd, *even], strict=True)]
    return {"odd": all(right[:3]), "even": all(right[3:]), "argument_unchanged": all(unchanged)}


def check_summary(ctx: ToolContext) -> dict[str, bool]:
    summary = parsed((ctx.read_bytes("/work/summary.json") or b"")[:LONGEST_ANSWER])
    found = summary if isinstance(summary, dict) else {}
    expected = {"requests": 5, "errors": 2, "bytes": 238}
    met = {name: found.get(name) == value for name, value in expected.items()}
    return {**met, "paths": ctx.read_bytes("/work/paths.txt") == b"/a\n/b\n/c\n"}


def check_tree(ctx: ToolContext) -> dict[str, bool]:
    left = ctx.terminal("find /work/tree -name '*.txt'")
    read = {name: ctx.read_bytes(f"/work/tree/{name}") for name in ("a.md", "deep/er/b.md", "deep/keep.csv")}
    return {
        "renamed": (read["a.md"], read["deep/er/b.md"]) == (b"a", b"b"),
        "none_left": left["exit_code"] == 0 and not left["output"],
        "others_kept": read["deep/keep.csv"] == b"c",
    }


def parsed(text: str | bytes) -> JsonValue:
    """JSON that the agent, or its code, wrote; None for anything else."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


TASKS = {
    "fix_median": Task(
        prompt=(
            "stats.py in your working directory has a function `median` with two bugs: it changes its "
            "argument, and it is wrong for an even number of values. Fix both. Keep the function's name."
        ),
        files={"/work/stats.py": BUGGY},
        check=check_median,
    ),
    "log_summary": Task(
        prompt=(
            "access.log in your working directory has lines `METHOD PATH STATUS BYTES`. Write summary.json with "
            "the keys `requests` (how many lines), `errors` (status 500 and above) and `bytes` (their sum), and "
            "write the distinct paths, sorted, one a line, into paths.txt."
        ),
        files={
            "/work/access.log": "GET /a 200 120\nPOST /b 503 10\nGET /a 304 0\nGET /c 200 77\nGET /b 500 31\n"
        },
        check=check_summary,
    ),
    "rename_tree": Task(
        prompt=(
            "Under tree/ in your working directory, rename every file that ends in .txt to end in .md, in all "
            "subfolders, and delete every empty folder. Leave other files alone."
        ),
        files={
            "/work/tree/a.txt": "a",
            "/work/tree/deep/er/b.txt": "b",
            "/work/tree/deep/keep.csv": "c",
        },
        check=check_tree,
    ),
}


class TerminalTasksConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal", "file", "todo")
    system_prompt: str | None = "You are a careful engineer working in a Linux sandbox. Use your tools."


class TerminalTasks(Environment):
    """The reward is the share of criteria met."""

    config_class = TerminalTasksConfig

    async def setup(self) -> None:
        self._names = iter(TASKS)

    async def get_next_item(self) -> Item | None:
        name = next(self._names, None)
        return None if name is None else {"task": name}

    def format_prompt(self, item: Item) -> str:
        return TASKS[str(item["task"])].prompt

    def workspace_files(self, item: Item) -> Mapping[str, str]:
        return TASKS[str(item["task"])].files

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        points = {name: float(met) for name, met in TASKS[str(item["task"])].check(ctx).items()}
        return Reward(score=sum(points.values()) / len(points), breakdown=points)
