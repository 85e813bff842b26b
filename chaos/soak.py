"""Random faults on larger runs, for as long as one likes; counted as in the matrix."""

from collections.abc import Callable


async def soak(minutes: float, say: Callable[[str], None]) -> int:
    raise NotImplementedError
