"""Small file tasks for a small model: create, append, read and count, verified in the real files."""

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from clotho.environment import (
    AgentResult,
    Environment,
    EnvironmentConfig,
    EvaluatedItem,
    Item,
    Reward,
    ToolContext,
)

CREATE = (
    "Create a file at {path} containing exactly the text: {text}",
    "Create a file {path} with exactly this text: {text}",
    "Write the text '{text}' to the file {path}",
    "Please create {path} containing exactly: {text}",
    "Make a file at {path} that contains exactly the text: {text}",
)
APPEND = ("Append the line '{text}' to the file {path}", "Append to {path} the line: {text}")
READ = (
    "What is in the file {path}?",
    "Read the file {path} and tell me its contents",
    "Show me the contents of {path}",
)
COUNT = ("How many lines are in {path}?", "Count the lines in the file {path}")
READ_BACK = (
    "Create a file at {path} containing exactly the text: {text} and then read it back",
    "Write '{text}' to {path} and then show me the file",
)
PHRASINGS = {"create": CREATE, "append": APPEND, "read": READ, "count": COUNT, "read_back": READ_BACK}

# The embedded model copies some of these names surely and trips over others.
FOLDERS = ("~/river", "~/notes", "~/docs", "/tmp", "~")
STEMS = ("Notes", "report", "river", "log", "qz", "greeting")
ENDINGS = ("txt", "md", "csv", "log")
WORDS = ("hello", "world", "42", "stone", "river", "winter", "lamp", "noon", "test")


class FileTasksConfig(EnvironmentConfig):
    """`kinds` limits the tasks; `seed` draws another sequence of them."""

    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    max_agent_turns: int = 4
    max_token_length: int | None = 160
    kinds: tuple[str, ...] = ("create", "read_back", "append")
    seed: int = 0


class FileTasks(Environment):
    """One short shell task an item; the reward is 1 if the files, or the answer, are right."""

    config_class = FileTasksConfig
    held_out = {"seed": 20_000}
    config: FileTasksConfig

    async def setup(self) -> None:
        self._random = random.Random(self.config.seed)

    async def get_next_item(self) -> Item:
        draw = self._random
        kind = draw.choice(self.config.kinds)
        path = f"{draw.choice(FOLDERS)}/{draw.choice(STEMS)}.{draw.choice(ENDINGS)}"
        text = " ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 3)))
        lines = [draw.choice(WORDS) for _ in range(draw.randint(2, 6))]
        prompt = draw.choice(PHRASINGS[kind]).format(path=path, text=text)
        return {"kind": kind, "path": path, "text": text, "lines": list(lines), "prompt": prompt}

    def format_prompt(self, item: Item) -> str:
        return str(item["prompt"])

    def workspace_files(self, item: Item) -> Mapping[str, str]:
        """The folder exists; a file to read, to count or to append to is there already."""
        path = str(item["path"])
        if item["kind"] in ("read", "count", "append"):
            return {path: before(item)}
        return {f"{path.rpartition('/')[0]}/.keep": ""}

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        found = await ctx.aio.read_bytes(str(item["path"]))
        content = None if found is None else found.decode(errors="replace")
        answer = str(result.messages[-1].get("content") or "")
        right = is_right(item, content, answer)
        return Reward(score=float(right), log=f"file: {content!r}\nanswer: {answer!r}")

    def evaluate(self, items: Sequence[EvaluatedItem]) -> dict[str, float]:
        """The mean reward of each kind of task."""
        kinds = sorted({str(each.item["kind"]) for each in items})
        of_kind = {kind: [each for each in items if each.item["kind"] == kind] for kind in kinds}
        return {
            f"reward of {kind}": fmean([rollout.score for each in of_kind[kind] for rollout in each.rollouts])
            for kind in kinds
        }


def before(item: Item) -> str:
    """The content of the file at the start."""
    lines = item["lines"]
    assert isinstance(lines, list)
    return "".join(f"{line}\n" for line in lines)


def is_right(item: Item, content: str | None, answer: str) -> bool:
    text = str(item["text"])
    match item["kind"]:
        case "create" | "read_back":
            return content is not None and content.removesuffix("\n") == text
        case "append":
            return content is not None and content.splitlines() == [*before(item).splitlines(), text]
        case "read":
            return all(line in answer for line in before(item).splitlines())
        case _:
            return str(len(before(item).splitlines())) in answer.split("line")[0]
