"""Items with solutions: the reward is 1 where /work/answer holds the item's word."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Solution, ToolContext


class SolvedFilesConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("todo",)


class SolvedFiles(Environment):
    config_class = SolvedFilesConfig

    async def setup(self) -> None:
        self.words = iter(("one", "two", "unsolved"))

    async def get_next_item(self) -> Item | None:
        word = next(self.words, None)
        return None if word is None else {"word": word}

    def format_prompt(self, item: Item) -> str:
        return f"write {item['word']}"

    def solution(self, item: Item) -> Solution:
        if item["word"] == "unsolved":
            raise LookupError("nobody knows")
        return Solution(command="cp solution/word answer", files={"solution/word": str(item["word"])})

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float((ctx.read_bytes("/work/answer") or b"").decode() == item["word"])


class TimedFilesConfig(SolvedFilesConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class TimedFiles(SolvedFiles):
    """Its items have twenty seconds."""

    config_class = TimedFilesConfig

    def time_limit(self, item: Item) -> float:
        return 20.0


class HurriedFiles(TimedFiles):
    """Its items end after the first turn."""

    def time_limit(self, item: Item) -> float:
        return 0.001
