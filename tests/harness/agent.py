"""A small harness of chat completions: it runs the commands that the model asks for, until there are none.

It runs in a sandbox and has nothing but Python. It never asks again: a failed request ends it with exit code 1.
"""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "terminal",
        "description": "Run a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}


def ask(messages: list[Any]) -> Any:
    body = json.dumps({"model": "any", "messages": messages, "tools": [TOOL]}).encode()
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        body,
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]


def main() -> None:
    task = Path(sys.argv[1]).read_text()
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        message = ask(messages)
        messages.append({name: value for name, value in message.items() if value is not None})
        calls = message.get("tool_calls") or []
        if not calls:
            sys.stdout.write(message.get("content") or "")
            return
        for call in calls:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            output = done.stdout + done.stderr
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})


if __name__ == "__main__":
    main()
