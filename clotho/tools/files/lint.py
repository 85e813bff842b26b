"""Syntax checks of what was written: parsed on the host, never executed.

Parsers take time that grows faster than a text, and some hold up the whole process meanwhile. So all but short
texts are parsed in a process of their own, which runs this file and nothing else, and is killed in time.
"""

import ast
import json
import resource
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import PurePosixPath

MAX_CHARS = 300_000
SHORT_CHARS = 4_000
"""Characters that take less than a second to parse, whatever they are."""
TIMEOUT_SECONDS = 5.0
MEMORY_BYTES = 1 << 30

Lint = dict[str, str]


def lint(path: str, text: str) -> Lint:
    """`{"status": "ok" | "error" | "skipped", "output": ...}` for `text` in a file called `path`. Blocks."""
    check = CHECKS.get(PurePosixPath(path).suffix.lower())
    if check is None:
        return {"status": "skipped", "output": "no check for this kind of file"}
    if len(text) > MAX_CHARS:
        return {"status": "skipped", "output": "too large to check"}
    return _checked(check, text) if len(text) <= SHORT_CHARS else _apart(path, text)


def _apart(path: str, text: str) -> Lint:
    """`lint`, in a process of its own."""
    # -I -S: neither the worker's variables nor a folder on the path decide what is imported
    command = [sys.executable, "-I", "-S", __file__, PurePosixPath(path).suffix.lower()]
    try:
        done = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=TIMEOUT_SECONDS, env={}
        )
    except subprocess.TimeoutExpired:
        return {"status": "skipped", "output": "took too long to check"}
    if done.returncode != 0:
        return {"status": "skipped", "output": "too complex to check"}
    result: Lint = json.loads(done.stdout)
    return result


def _checked(check: Callable[[str], object], text: str) -> Lint:
    try:
        check(text)
    except SyntaxError as error:
        return {"status": "error", "output": f"{type(error).__name__}: {error.msg} (line {error.lineno})"}
    except (RecursionError, MemoryError):
        return {"status": "skipped", "output": "nested too deeply to check"}
    except ValueError as error:
        return {"status": "error", "output": f"{type(error).__name__}: {error}"}
    return {"status": "ok", "output": ""}


CHECKS: dict[str, Callable[[str], object]] = {
    ".py": ast.parse,
    ".pyi": ast.parse,
    ".json": json.loads,
    ".toml": tomllib.loads,
}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # for a worker that dies meanwhile: its timeout would end nothing
    resource.setrlimit(resource.RLIMIT_CPU, (round(TIMEOUT_SECONDS), round(TIMEOUT_SECONDS)))
    sys.stdout.write(json.dumps(_checked(CHECKS[sys.argv[1]], sys.stdin.buffer.read().decode())))
