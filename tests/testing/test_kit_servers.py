"""MCP servers in the test kit: the agent, the author's `ctx` and the verifier call the same tools."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from clotho.environment import ToolContext
from clotho.plugin_settings import sections_of
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.testing import ScriptedCall, sandboxed_context
from environments.mcp_tasks import McpTasks, McpTasksConfig

SERVER = Path(__file__).parents[1] / "tools" / "mcp_server.py"


def said(context: ToolContext, tool: str, **arguments: Any) -> str:
    found: str = json.loads(context.call_tool(tool, arguments))["result"]
    return found


def test_a_server_in_the_sandbox_is_the_agent_s_and_the_verifier_s() -> None:
    with sandboxed_context(McpTasks) as task:
        given = {"source": "alice", "target": "bob", "amount": 30}
        result = task.play(ScriptedCall(name="mcp_ledger_transfer", arguments=given))
        assert result.tool_errors == []
        assert json.loads(said(task.agent, "mcp_ledger_list_accounts")) == {"alice": 70, "bob": 50}
        assert task.reward().score == 1.0
        verifier = task.verifier()
        assert json.loads(said(verifier, "mcp_ledger_list_accounts")) == {"alice": 70, "bob": 50}
        said(verifier, "mcp_ledger_transfer", source="bob", target="alice", amount=1)
        found = asyncio.run(verifier.aio.call_tool("mcp_ledger_list_accounts", {}))
        assert json.loads(json.loads(found)["result"]) == {"alice": 71, "bob": 49}


def test_a_server_on_the_host_has_one_conversation_with_a_task(tmp_path: Path) -> None:
    server = McpServer(command=(sys.executable, "-S", str(SERVER), str(tmp_path)), where="host")
    servers = sections_of(McpSettings(servers={"notes": server}))
    config = McpTasksConfig(enabled_toolsets=("mcp-notes",), plugins=servers)
    with sandboxed_context(McpTasks(config)) as task:
        task.play(ScriptedCall(name="mcp_notes_add_note", arguments={"text": "a"}))
        assert said(task.agent, "mcp_notes_add_note", text="b") == "2 notes"
        assert said(task.verifier(), "mcp_notes_add_note", text="c") == "3 notes"
