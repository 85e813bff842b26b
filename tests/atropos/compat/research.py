"""Questions whose answers the served model judges, in rewards and in an evaluation that takes its notes back."""

import json
import uuid
from typing import Any

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from atropos_adapter import AgentResult, HermesAgentBaseEnv, HermesAgentEnvConfig, ToolContext

QUESTIONS = ("What is the tallest tower?", "Which river is the longest?")


class ResearchConfig(HermesAgentEnvConfig):
    correctness_weight: float = 0.6
    eval_size: int = 2


class Research(HermesAgentBaseEnv):
    name = "research"
    env_config_cls = ResearchConfig

    @classmethod
    def config_init(cls) -> tuple[ResearchConfig, list[APIServerConfig]]:
        config = ResearchConfig(
            enabled_toolsets=["web", "file"],
            max_agent_turns=4,
            system_prompt="Cite two sources.",
            group_size=2,
            ensure_scores_are_not_same=False,
        )
        return config, [APIServerConfig(base_url="https://models.example/v1", model_name="far")]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._judged: list[float] = []
        self._drawn = 0

    async def get_next_item(self) -> dict[str, str]:
        self._drawn += 1
        return {"question": QUESTIONS[(self._drawn - 1) % len(QUESTIONS)]}

    def format_prompt(self, item: dict[str, str]) -> str:
        return f"Find out: {item['question']}"

    async def compute_reward(self, item: dict[str, str], result: AgentResult, ctx: ToolContext) -> float:
        said = [message["content"] for message in result.messages if message["role"] == "assistant"]
        answer = str(next(text for text in reversed(said) if text))
        judged = await self._judge(item["question"], answer)
        self._judged.append(judged)
        return float(self.config.correctness_weight) * judged + (0.4 if answer.count("https://") > 1 else 0.0)

    async def _judge(self, question: str, answer: str) -> float:
        try:
            verdict = await self.server.chat_completion(
                messages=[{"role": "user", "content": f"Judge from 0 to 1.\n{question}\n{answer}"}],
                n=1,
                max_tokens=60,
                temperature=0.0,
                split="eval",
            )
            return float(json.loads(verdict.choices[0].message.content)["score"])
        except Exception:
            return 0.0

    async def evaluate(self, *_: Any, **__: Any) -> None:
        from atropos_adapter import HermesAgentLoop

        tools, names = self._resolve_tools_for_group()
        rewards, judged = [], []
        for question in QUESTIONS[: self.config.eval_size]:
            item, task = {"question": question}, str(uuid.uuid4())
            try:
                agent = HermesAgentLoop(
                    server=self.server,
                    tool_schemas=tools,
                    valid_tool_names=names,
                    max_turns=self.config.max_agent_turns,
                    task_id=task,
                    temperature=0.0,
                    max_tokens=self.config.max_token_length,
                    extra_body=self.config.extra_body,
                    budget_config=self.config.build_budget_config(),
                )
                messages = [{"role": "system", "content": self.config.system_prompt}]
                result = await agent.run([*messages, {"role": "user", "content": self.format_prompt(item)}])
                context = ToolContext(task)
                try:
                    rewards.append(await self.compute_reward(item, result, context))
                finally:
                    context.cleanup()
                judged.append(self._judged.pop())
            except Exception:
                rewards.append(0.0)
                judged.append(0.0)
        mean = sum(rewards) / len(rewards)
        await self.evaluate_log({"eval/mean_reward": mean, "eval/correct": sum(judged) / len(judged)})
