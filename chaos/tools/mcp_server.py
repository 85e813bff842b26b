"""An MCP server that leaves marks, run in the sandbox: a program of its own."""

import json
import sys
import time
from pathlib import Path
from typing import Any

MARKS = Path("/work/.ran")
SECONDS = {"type": "number"}
TOOLS = [
    {
        "name": "look",
        "description": "Show what is done.",
        "inputSchema": {"type": "object", "properties": {}},
    },
    {
        "name": "mark",
        "description": "Do one thing, and take some seconds for it.",
        "inputSchema": {
            "type": "object",
            "properties": {"call": {"type": "string"}, "seconds": SECONDS},
            "required": ["call", "seconds"],
        },
    },
]


def answer(tool: str, given: dict[str, Any]) -> dict[str, Any]:
    if tool == "mark":
        with MARKS.open("a") as file:
            file.write(f"{given['call']}\n")
        time.sleep(given["seconds"])
    done = MARKS.read_text().split() if MARKS.exists() else []
    return {"content": [{"type": "text", "text": " ".join(["Done:", *done])}], "isError": False}


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "marks", "version": "1"},
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
