"""An MCP server with a ledger of accounts, of the standard library alone: `python3 ledger.py FILE`.

FILE holds the balances as JSON, and is written after every change.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[-1])
NAME = {"type": "string", "description": "Name of an account"}
AMOUNT = {"type": "integer", "minimum": 1, "description": "Whole number of coins"}


def described(name: str, description: str, /, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    described("list_accounts", "List all accounts with their balances."),
    described("transfer", "Move coins from one account to another.", source=NAME, target=NAME, amount=AMOUNT),
    described("open_account", "Open an account with a balance of 0.", name=NAME),
    described("close_account", "Close an account, whose balance must be 0.", name=NAME),
]


def call(accounts: dict[str, int], tool: str, given: dict[str, Any]) -> str:
    """Change `accounts`; raises KeyError for one that isn't there, ValueError for what may not be."""
    match tool:
        case "transfer":
            source, target, amount = given["source"], given["target"], int(given["amount"])
            if not 0 < amount <= accounts[source]:
                raise ValueError(f"{source} has {accounts[source]} coins")
            accounts[target] += amount
            accounts[source] -= amount
        case "open_account":
            if given["name"] in accounts:
                raise ValueError(f"{given['name']} has an account")
            accounts[given["name"]] = 0
        case "close_account":
            if accounts[given["name"]] != 0:
                raise ValueError(f"{given['name']} has {accounts[given['name']]} coins")
            del accounts[given["name"]]
    return json.dumps(accounts)


def answer(tool: str, given: dict[str, Any]) -> dict[str, Any]:
    accounts = json.loads(FILE.read_text())
    try:
        text, failed = call(accounts, tool, given), False
    except KeyError as error:
        text, failed = f"no account or argument {error}", True
    except (ValueError, TypeError) as error:
        text, failed = str(error), True
    if not failed:
        new = FILE.with_suffix(".new")
        new.write_text(json.dumps(accounts))
        os.replace(new, FILE)
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "ledger", "version": "1"},
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return answer(params["name"], params.get("arguments", {}))
    return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            found = result(message["method"], message.get("params", {}))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
