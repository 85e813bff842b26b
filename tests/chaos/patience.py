"""More time for recoveries than the matrix gives: other tests run beside these."""

from chaos.results import CellResult

TIMES = 4


def missed_with_patience(result: CellResult) -> list[str]:
    """What a cell missed; `make chaos` is what holds recoveries to their seconds."""
    limit = result.recovery_limit
    return result.model_copy(update={"recovery_limit": None if limit is None else TIMES * limit}).missed
