"""Tasks in a small shop that the sandbox serves to the browser; the reward goes by what it has on file then."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext
from clotho.plugin_settings import sections_of
from clotho.plugins.browser.settings import BrowserSettings

HOST = "shop.test"
FOLDER = "/work/.shop"
PROGRAM = Path(__file__).with_name("_browser_shop.py")
EMPTY: dict[str, Any] = {"cart": {}, "orders": [], "messages": [], "subscriptions": []}
ADA = {"name": "Ada Lovelace", "street": "12 Crank Street", "city": "London"}
TASKS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    (
        "Order 2 of the blue linen thread, by express, for Ada Lovelace, 12 Crank Street, London.",
        {},
        {"orders": [{**ADA, "shipping": "express", "goods": {"linen-blue": 2}}]},
    ),
    (
        "Order 3 of the cheapest wool yarn, with standard shipping, for Ada Lovelace, 12 Crank Street, London.",
        {},
        {"orders": [{**ADA, "shipping": "standard", "goods": {"wool-white": 3}}]},
    ),
    (
        "Take the scissors out of the cart, put 1 drop spindle into it, and leave the rest as it is. Don't order.",
        {"cart": {"needles": 4, "scissors": 1}},
        {"cart": {"needles": 4, "spindle": 1}},
    ),
    (
        "Send the shop a message about a delivery, from ada@example.org: Order 1042 never arrived.",
        {},
        {
            "messages": [
                {"email": "ada@example.org", "topic": "Delivery", "text": "Order 1042 never arrived."}
            ]
        },
    ),
    (
        "Subscribe ada@example.org to the weekly newsletter, without offers.",
        {},
        {"subscriptions": [{"email": "ada@example.org", "often": "weekly"}]},
    ),
)


class BrowserTasksConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("browser",)
    max_agent_turns: int = 25
    plugins: dict[str, Any] = sections_of(BrowserSettings(sites={HOST: f"python3 {FOLDER}/shop.py"}))


class BrowserTasks(Environment):
    """One task an item; the reward is 1 where the shop's state is as asked, and nothing else has changed."""

    config_class = BrowserTasksConfig

    async def setup(self) -> None:
        self._tasks = iter(TASKS)

    async def get_next_item(self) -> Item | None:
        task, before, after = next(self._tasks, (None, {}, {}))
        return None if task is None else {"task": task, "before": before, "after": after}

    def format_prompt(self, item: Item) -> str:
        return f"Use the browser in the shop at http://{HOST}/. {item['task']}"

    def workspace_files(self, item: Item) -> Mapping[str, str]:
        return {
            f"{FOLDER}/shop.py": PROGRAM.read_text(),
            f"{FOLDER}/state.json": json.dumps(state(item["before"])),
        }

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        found = (await ctx.aio.read_bytes(f"{FOLDER}/state.json") or b"").decode(errors="replace")
        try:
            right = json.loads(found) == state(item["after"])
        except ValueError:
            right = False
        return Reward(score=float(right), log=f"the shop has {found}")


def state(changed: Any) -> dict[str, Any]:
    return {**EMPTY, **changed}
