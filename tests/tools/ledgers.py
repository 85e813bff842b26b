"""The bundled MCP server, in a rollout's sandbox and on the host, for the conformance suite."""

import atexit
import json
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.settings import McpServer
from clotho.plugins.mcp.tool import McpTool, ServerTool, mcp_tool
from environments.mcp_tasks import ACCOUNTS, SERVER

PROGRAM = Path(__file__).parents[2] / "environments" / "servers" / "ledger.py"
START = json.dumps({"alice": 100, "bob": 20})
MOVED = json.dumps({"alice": 95, "bob": 25})
MANY = json.dumps({"alice": 100, "bob": 20} | {f"name-{number}": number for number in range(100)})
MOVE = {"source": "alice", "target": "bob", "amount": 5}

_folder = Path(tempfile.mkdtemp(prefix="clotho-test-"))
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
HOST_ACCOUNTS = _folder / "accounts.json"

IN_SANDBOX, ON_HOST = "ledger", "bank"
MCP_SERVERS = {
    IN_SANDBOX: McpServer(command=("python3", "-S", SERVER, ACCOUNTS)),
    ON_HOST: McpServer(command=(sys.executable, "-S", str(PROGRAM), str(HOST_ACCOUNTS)), where="host"),
}
SERVERS = McpServers(lambda name: None)


def _tools(server: str) -> list[McpTool]:
    return [
        mcp_tool(
            f"mcp_{server}_{each['name']}",
            ServerTool(server, each["name"]),
            each["description"],
            each["inputSchema"],
            SERVERS,
            MCP_SERVERS[server].sandboxed,
        )
        for each in runpy.run_path(str(PROGRAM))["TOOLS"]
    ]


MCP_TOOLS = [*_tools(IN_SANDBOX), *_tools(ON_HOST)]
