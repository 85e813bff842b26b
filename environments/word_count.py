"""Count the words of a file: a complete environment."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext

TEXTS = ("the quick brown fox", "one two", "a rose is a rose is a rose", "so it goes")


class WordCountConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    max_agent_turns: int = 6


class WordCount(Environment):
    config_class = WordCountConfig

    async def setup(self) -> None:
        self.texts = iter(TEXTS)

    async def get_next_item(self) -> Item | None:
        text = next(self.texts, None)
        return None if text is None else {"text": text}

    def workspace_files(self, item: Item) -> dict[str, str]:
        return {"/work/text.txt": str(item["text"])}

    def format_prompt(self, item: Item) -> str:
        return "Count the words in text.txt and write the number, and nothing else, into count.txt."

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        count = ctx.read_bytes("/work/count.txt") or b""
        return float(count.strip() == str(len(str(item["text"]).split())).encode())
