"""Claims on calls that are made at most once."""

import uuid
from collections.abc import Awaitable, Callable

from clotho.tools.tool import ToolOutcome

Once = Callable[[str, Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]]


async def journalled(once: Once, name: str, text: str) -> str:
    """Journal `text` under `name`; returns what was journalled first."""

    async def written() -> ToolOutcome:
        return ToolOutcome(content=text)

    return (await once(name, written)).content


async def is_first(once: Once, name: str) -> bool:
    """Whether this attempt is the first that claims `name`."""
    # drawn by each attempt: only the first one finds its own in the journal
    mine = uuid.uuid4().hex
    return await journalled(once, name, mine) == mine
