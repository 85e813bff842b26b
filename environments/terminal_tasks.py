"""Multi-step terminal tasks for a capable model, with partial credit from a hidden checker."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


@dataclass(frozen=True)
class Task:
    """A prompt, the files it starts from, and a shell checker that prints one line `name points` a criterion."""

    prompt: str
    files: Mapping[str, str]
    criteria: tuple[str, ...]
    checker: str


BUGGY = """\
def median(values):
    values.sort()
    middle = len(values) // 2
    return values[middle]
"""

TASKS = {
    "fix_median": Task(
        prompt=(
            "stats.py in your working directory has a function `median` with two bugs: it changes its "
            "argument, and it is wrong for an even number of values. Fix both. Keep the function's name."
        ),
        files={"/work/stats.py": BUGGY},
        criteria=("odd", "even", "argument_unchanged"),
        checker="""
python3 - <<'END'
import sys
sys.path.insert(0, "/work")
from stats import median
def criterion(name, right): print(name, int(bool(right)))
criterion("odd", median([3, 1, 2]) == 2)
criterion("even", median([4, 1, 3, 2]) == 2.5)
given = [3, 1, 2]
median(given)
criterion("argument_unchanged", given == [3, 1, 2])
END
""",
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
        criteria=("requests", "errors", "bytes", "paths"),
        checker="""
cd /work
python3 -c 'import json; s = json.load(open("summary.json"))
for name, value in {"requests": 5, "errors": 2, "bytes": 238}.items(): print(name, int(s.get(name) == value))'
printf '/a\\n/b\\n/c\\n' | cmp -s - paths.txt && echo paths 1 || echo paths 0
""",
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
        criteria=("renamed", "none_left", "others_kept"),
        checker="""
cd /work/tree
test -f a.md && test -f deep/er/b.md && echo renamed 1 || echo renamed 0
test -z "$(find . -name '*.txt')" && echo none_left 1 || echo none_left 0
test -f deep/keep.csv && echo others_kept 1 || echo others_kept 0
""",
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

    def hidden_files(self, item: Item) -> Mapping[str, str]:
        return {"check.sh": TASKS[str(item["task"])].checker}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        criteria = TASKS[str(item["task"])].criteria
        checked = ctx.terminal("bash /verifier/check.sh")
        met = {line.removesuffix(" 1") for line in checked["output"].splitlines() if line.endswith(" 1")}
        points = {name: float(name in met) for name in criteria}
        return Reward(score=sum(points.values()) / len(criteria), breakdown=points, log=json.dumps(checked))
