"""The least that such an environment has: what a test drives by hand."""

from typing import Any, ClassVar

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from atropos_adapter import AgentResult, HermesAgentBaseEnv, HermesAgentEnvConfig, ToolContext


class NotesConfig(HermesAgentEnvConfig):
    answer: str = "42"


class Notes(HermesAgentBaseEnv):
    name: ClassVar[str | None] = "Notes_of tests"
    env_config_cls = NotesConfig

    @classmethod
    def config_init(cls) -> tuple[NotesConfig, list[APIServerConfig]]:
        config = NotesConfig(
            enabled_toolsets=["terminal", "file"],
            max_agent_turns=6,
            terminal_backend="modal",
            group_size=2,
            turn_budget_chars=50_000,
            tool_result_overrides={"terminal": 9_000},
        )
        return config, [APIServerConfig(base_url="https://models.example/v1", model_name="far")]

    async def get_next_item(self) -> dict[str, Any]:
        return {"number": 1}

    def format_prompt(self, item: dict[str, Any]) -> str:
        return "Note the answer."

    async def compute_reward(self, item: dict[str, Any], result: AgentResult, ctx: ToolContext) -> float:
        return float(ctx.terminal("cat /work/note")["output"].strip() == self.config.answer)

    async def evaluate(self, *_: Any, **__: Any) -> None:
        await self.evaluate_log({"eval/nothing": 0.0})


class OtherNotes(Notes):
    name = "other-notes"


class Nameless(Notes):
    name = None
