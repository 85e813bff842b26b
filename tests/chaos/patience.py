"""More time than the matrix gives: other tests run beside these."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from chaos import cell
from chaos.results import CellResult
from tests.support import PATIENCE_SECONDS

TIMES = 20
LANES = 3
"""Most of a cell is waiting, and no time of it is told here."""
COMPLETION_SECONDS = 600.0


@contextmanager
def patience() -> Iterator[None]:
    """Runs may take longer to complete, and what they leave behind to be cleared away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell, "COMPLETION_SECONDS", COMPLETION_SECONDS)
        patch.setattr(cell, "completion", partial(cell.completion, seconds=COMPLETION_SECONDS))
        patch.setattr(cell, "REAPER_SECONDS", PATIENCE_SECONDS)
        yield


def missed_with_patience(result: CellResult) -> list[str]:
    """What a cell missed; `make chaos` is what holds recoveries to their seconds."""
    limit = result.recovery_limit
    return result.model_copy(update={"recovery_limit": None if limit is None else TIMES * limit}).missed
