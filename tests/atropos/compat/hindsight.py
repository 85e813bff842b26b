"""A distillation: what the model said is scored again, knowing what came of it, for the trainer to distil from."""

import logging
from typing import Any

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from atropos_adapter import AgentResult, HermesAgentBaseEnv, HermesAgentEnvConfig, ToolContext

log = logging.getLogger("hindsight")


class HindsightConfig(HermesAgentEnvConfig):
    candidates: int = 4


class Hindsight(HermesAgentBaseEnv):
    name = "hindsight"
    env_config_cls = HindsightConfig

    @classmethod
    def config_init(cls) -> tuple[HindsightConfig, list[APIServerConfig]]:
        config = HindsightConfig(
            enabled_toolsets=["terminal", "file"],
            max_agent_turns=5,
            group_size=2,
            max_token_length=2_000,
            ensure_scores_are_not_same=False,
        )
        server = APIServerConfig(base_url="http://models.example/v1", model_name="far", server_type="vllm")
        return config, [server]

    async def get_next_item(self) -> dict[str, Any]:
        return {"function": "double"}

    def format_prompt(self, item: dict[str, Any]) -> str:
        return f"Write {item['function']}(n) to answer.py, a test of it to check.py, and run python check.py"

    async def compute_reward(self, item: dict[str, Any], result: AgentResult, ctx: ToolContext) -> float:
        checked = ctx.terminal("python check.py 2>&1", timeout=30)
        return 1.0 if checked.get("exit_code", 1) == 0 else 0.1

    async def collect_trajectories(self, item: Any) -> Any:
        group, further = await super().collect_trajectories(item)
        if isinstance(group, dict) and self._use_managed_server():
            await self._distil(group)
        return group, further

    async def _distil(self, group: dict[str, Any]) -> None:
        ids, logprobs = [], []
        for messages, tokens in zip(group["messages"], group["tokens"], strict=True):
            try:
                row = await self._scored(messages, tokens)
            except Exception as error:
                log.debug("not scored: %s", error)
                row = None
            ids.append(row[0] if row else [[0] * self.config.candidates] * len(tokens))
            logprobs.append(row[1] if row else [[0.0] * self.config.candidates] * len(tokens))
        group["distill_token_ids"], group["distill_logprobs"] = ids, logprobs

    async def _scored(self, messages: list[dict[str, Any]], tokens: list[int]) -> tuple[Any, Any]:
        """Of the first thing that the model said, with a hint before it."""
        wide = self.config.candidates
        ids, logprobs = [[0] * wide for _ in tokens], [[0.0] * wide for _ in tokens]
        text = next(message["content"] for message in messages if message["role"] == "assistant")
        said = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        hinted = [*messages[:1], {"role": "user", "content": "A hint: test it before you end."}]
        before = self.tokenizer.apply_chat_template(hinted, tokenize=False, add_generation_prompt=True)
        sequence = self.tokenizer(before + text, add_special_tokens=False)["input_ids"]
        scores = await self.server.get_logprobs(input_ids=sequence, top_k=wide, split="eval")
        starts = (at for at in range(len(tokens)) if tokens[at : at + len(said)] == said)
        start = next(starts)
        for at in range(len(said)):
            ids[start + at] = scores["prompt_topk_token_ids"][at - len(said)][:wide]
            logprobs[start + at] = scores["prompt_topk_logprobs"][at - len(said)][:wide]
        return ids, logprobs

    async def evaluate(self, *_: Any, **__: Any) -> None:
        await self.evaluate_log({"eval/nothing": 0.0})
