"""Small tasks in a ledger that an MCP server keeps in the sandbox, verified in the ledger's own file."""

import json
from pathlib import Path
from typing import Any

from clotho.environment import (
    AgentResult,
    Environment,
    EnvironmentConfig,
    Item,
    Reward,
    ToolContext,
)
from clotho.plugin_settings import sections_of
from clotho.plugins.mcp.settings import McpServer, McpSettings

SERVER, ACCOUNTS = "/work/ledger/server.py", "/work/ledger/accounts.json"

ITEMS: tuple[Item, ...] = (
    {
        "prompt": "Move 30 coins from alice to bob.",
        "accounts": {"alice": 100, "bob": 20},
        "expected": {"alice": 70, "bob": 50},
    },
    {
        "prompt": "Make the balances of ann and ben equal with a single transfer.",
        "accounts": {"ann": 90, "ben": 40, "cid": 10},
        "expected": {"ann": 65, "ben": 65, "cid": 10},
    },
    {
        "prompt": "Open an account for dora, and give her 15 coins from whoever has most.",
        "accounts": {"eve": 20, "fay": 75, "gus": 60},
        "expected": {"dora": 15, "eve": 20, "fay": 60, "gus": 60},
    },
    {
        "prompt": "Close every account that has no coins.",
        "accounts": {"hal": 0, "ida": 5, "jon": 0, "kim": 12},
        "expected": {"ida": 5, "kim": 12},
    },
    {
        "prompt": "Close leo's account. What he has goes to mia, but she may not have more than 50 coins: the "
        "rest goes to ned.",
        "accounts": {"leo": 34, "mia": 30, "ned": 1},
        "expected": {"mia": 50, "ned": 15},
    },
)


class McpTasksConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("mcp-ledger",)
    max_agent_turns: int = 12
    plugins: dict[str, Any] = sections_of(
        McpSettings(servers={"ledger": McpServer(command=("python3", SERVER, ACCOUNTS))})
    )


class McpTasks(Environment):
    """One order an item; the reward is 1 if the balances are right."""

    config_class = McpTasksConfig

    async def setup(self) -> None:
        self._items = iter(ITEMS)

    async def get_next_item(self) -> Item | None:
        return next(self._items, None)

    def workspace_files(self, item: Item) -> dict[str, str]:
        server = (Path(__file__).with_name("servers") / "ledger.py").read_text()
        return {SERVER: server, ACCOUNTS: json.dumps(item["accounts"])}

    def format_prompt(self, item: Item) -> str:
        return f"You keep a ledger of coins. {item['prompt']} Say so when it is done."

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        found = json.loads(ctx.read_bytes(ACCOUNTS) or b"null")
        return Reward(score=float(found == item["expected"]), log=f"accounts: {found}")
