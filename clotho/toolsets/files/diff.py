"""Unified diffs, as a model is shown what it changed."""

import difflib

LONGEST = 20_000


def unified(path: str, before: str | None, after: str | None, moved_to: str | None = None) -> str:
    """The change of one file, cut to 20,000 characters; None stands for no file."""
    lines = difflib.unified_diff(
        (before or "").splitlines(),
        (after or "").splitlines(),
        "/dev/null" if before is None else f"a/{path}",
        "/dev/null" if after is None else f"b/{moved_to or path}",
        lineterm="",
    )
    text = "\n".join(lines)
    if moved_to is not None:
        text = f"rename {path} -> {moved_to}\n{text}".rstrip("\n")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... [diff truncated]"
