"""Mathematics with code: the answer is an expression, compared symbolically."""

import asyncio
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext
from clotho.errors import EnvironmentFailed
from environments._final_answer import ASKED, final_answer

CHECKER = Path(__file__).with_name("_same_expression.py")
SECONDS = 120.0
PROBLEMS: tuple[tuple[str, str], ...] = (
    ("How many integers from 1 to 1,000,000 are divisible by the sum of their decimal digits?", "95428"),
    ("What is the sum of all primes below 200,000?", "1709600813"),
    ("What is the integral of x**4*(1 - x)**4/(1 + x**2) from 0 to 1, exactly?", "22/7 - pi"),
    ("What is the sum of k*(k + 1)*(k + 2) for k from 1 to n, in terms of n?", "n*(n + 1)*(n + 2)*(n + 3)/4"),
    ("In how many ways can 500 cents be paid with coins of 1, 5, 10, 25, 50 and 100 cents?", "98411"),
)


class CodeMathConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("code_execution",)
    max_agent_turns: int = 8


class CodeMath(Environment):
    """One problem an item; the reward is 1 where the answer equals the known one."""

    config_class = CodeMathConfig

    async def setup(self) -> None:
        if find_spec("sympy") is None:
            raise EnvironmentFailed("code_math needs sympy: pip install 'clotho-rollouts[math]'")
        self._problems = iter(PROBLEMS)

    async def get_next_item(self) -> Item | None:
        problem, answer = next(self._problems, (None, ""))
        return None if problem is None else {"problem": problem, "answer": answer}

    def format_prompt(self, item: Item) -> str:
        return (
            f"{item['problem']}\n\nUse execute_code where computing helps. {ASKED} Write it as a number or as an "
            "expression in Python's notation, with `pi`, `E`, `sqrt`, `log`, `exp`, `sin` and the like: "
            "`Answer: 3*sqrt(2)/4`."
        )

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        answer = final_answer(result)
        right = bool(answer) and await asyncio.to_thread(same, str(item["answer"]), answer)
        return Reward(score=float(right), log=f"answer: {answer!r}, right: {item['answer']}")


def same(right: str, answer: str) -> bool:
    """Whether two expressions are equal; an answer that the checker can't read, or not within its bounds, is not.

    Raises EnvironmentFailed where the checker itself failed: that is no fault of the answer.
    """
    command = (sys.executable, "-I", str(CHECKER), right, answer.replace("\0", ""))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, timeout=SECONDS)
    said = done.stdout.decode().splitlines()
    if not said or (done.returncode < 0 and done.returncode != -signal.SIGXCPU):
        raise EnvironmentFailed(f"{CHECKER.name} ended with {done.returncode}")
    return said[1:] == ["same"]
