"""Model servers report counts, reasons and names beside an answer."""

from typing import Annotated

from pydantic import BaseModel, Field

from clotho.escaping import for_line, truncate_middle

MOST_TOKENS = 1_000_000_000
"""Far more than any context holds."""
Count = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
"""A count of tokens that a server reports; also an id or a position."""
StopReason = Count | Annotated[str, Field(max_length=1_000)]
REASON_CHARACTERS = 100
NAME_CHARACTERS = 200
VERSION_CHARACTERS = 200
"""Characters of a weight version's name."""
UNFINISHED = frozenset({"abort", "error"})
"""Reasons of an answer that broke off."""


class _PromptDetails(BaseModel):
    cached_tokens: Count | None = None


class ReportedUsage(BaseModel):
    """Token counts as OpenAI's API has them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None

    @property
    def cached_prompt_tokens(self) -> int:
        return (self.prompt_tokens_details or _PromptDetails()).cached_tokens or 0


def printable_name(name: str | None) -> str | None:
    """A name that a server gives itself, its model or a request, escaped and cut."""
    return truncate_middle(for_line(name), NAME_CHARACTERS) if name else None
