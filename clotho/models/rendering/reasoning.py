"""Think blocks in what a model wrote."""

import re

TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<longcat_think>", "</longcat_think>"))
"""Opening and closing tags, of which a model has at most one pair."""

FILLED = re.compile(
    "|".join(rf"{re.escape(opening)}(?!\s*{re.escape(closing)})" for opening, closing in TAGS)
)


def has_reasoning(text: str) -> bool:
    """Whether there is a think block anywhere that isn't empty."""
    return FILLED.search(text) is not None


def opened_by(prompt_end: str) -> tuple[str, str] | None:
    """The tags of the think block that a prompt ends in."""
    return next((tags for tags in TAGS if prompt_end.rstrip().endswith(tags[0])), None)


def split_reasoning(text: str, opened: tuple[str, str] | None) -> tuple[str | None, str | None]:
    """The think block that `text` begins with, or continues where the prompt `opened` it, and the rest.

    The rest is None while the block isn't closed; without a block, all is rest.
    """
    begun = text.lstrip()
    opening, closing = opened or next((tags for tags in TAGS if begun.startswith(tags[0])), ("", ""))
    if not opening:
        return None, text
    reasoning, closed, rest = begun.removeprefix(opening).partition(closing)
    return reasoning, rest if closed else None


def with_reasoning(reasoning: str, content: str | None) -> str:
    """A turn's text with its think block, for templates that know nothing of reasoning."""
    opening, closing = TAGS[0]
    return f"{opening}\n{reasoning}\n{closing}\n\n{content or ''}"
