"""A small harness that streams chat completions, run in the sandbox: it runs commands until the model is done.

It asks again where a connection is cut off or a stream has no end. An answer that is no success ends it, with exit
code 1.
"""

import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

STREAMS = Path("/work/.streams")
"""Gets a line with each stream that begins."""
AGAIN_SECONDS = 0.2
STREAM_SECONDS = 3600.0
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOL = {
    "type": "function",
    "function": {"name": "terminal", "description": "Run a command.", "parameters": PARAMETERS},
}


def ask(messages: list[Any]) -> dict[str, Any]:
    """The model's message, however often it takes to hear all of it."""
    body = json.dumps({"model": "any", "stream": True, "messages": messages, "tools": [TOOL]}).encode()
    head = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    while True:
        try:
            request = urllib.request.Request(url, body, head)
            with urllib.request.urlopen(request, timeout=STREAM_SECONDS) as stream:
                with STREAMS.open("a") as begun:
                    begun.write("begun\n")
                if (message := message_in(stream)) is not None:
                    return message
        except urllib.error.HTTPError as refused:
            sys.exit(f"{refused.code}: {refused.read().decode()}")
        except (OSError, http.client.HTTPException) as cut:
            sys.stderr.write(f"asks again: {cut}\n")
        time.sleep(AGAIN_SECONDS)


def message_in(stream: Any) -> dict[str, Any] | None:
    """The message that the events make up; None where they have no end."""
    content, calls = "", dict[int, dict[str, Any]]()
    for line in stream:
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            said = {"role": "assistant", "content": content}
            return {**said, "tool_calls": list(calls.values())} if calls else said
        for choice in json.loads(line[len(b"data: ") :])["choices"]:
            content += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls") or ():
                add(part, calls)
    return None


def add(part: dict[str, Any], calls: dict[int, dict[str, Any]]) -> None:
    """Add a piece of a tool call to what is there of it."""
    call = calls.setdefault(
        part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] += part.get("id") or ""
    for name, text in part.get("function", {}).items():
        call["function"][name] += text or ""


def main() -> None:
    messages: list[Any] = [{"role": "user", "content": Path(sys.argv[1]).read_text()}]
    while True:
        messages.append(message := ask(messages))
        if "tool_calls" not in message:
            break
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr}
            )
    sys.stdout.write(message["content"])


if __name__ == "__main__":
    main()
