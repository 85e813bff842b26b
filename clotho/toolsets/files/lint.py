"""Syntax checks of what was written: parsed on the host, never executed."""

import ast
import json
import tomllib
from collections.abc import Callable
from pathlib import PurePosixPath

LARGEST = 300_000
"""Characters: parsing holds up everything else in the process."""

Lint = dict[str, str]


def lint(path: str, text: str) -> Lint:
    """`{"status": "ok" | "error" | "skipped", "output": ...}` for `text` in a file called `path`. Blocks."""
    check = CHECKS.get(PurePosixPath(path).suffix.lower())
    if check is None:
        return {"status": "skipped", "output": "no check for this kind of file"}
    if len(text) > LARGEST:
        return {"status": "skipped", "output": "too large to check"}
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
