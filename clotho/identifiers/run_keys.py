"""Journal keys of a run."""

RUNS = "~runs/"
"""Where the manifests of all runs are: no run's name starts with a tilde."""


def manifest_key(run: str) -> str:
    return f"{RUNS}{run}"


DELETED = "~deleted/"
"""Where the marks of deleted runs are."""


def deleted_key(run: str) -> str:
    return f"{DELETED}{run}"


def endpoint_prefix(run: str) -> str:
    return f"{run}/~endpoint/"


def served_prefix(run: str) -> str:
    return f"{run}/~served/"


def order_prefix(run: str) -> str:
    return f"{run}/~order/"


def pause_prefix(run: str) -> str:
    return f"{run}/~pause/"


def repairs_prefix(run: str) -> str:
    return f"{run}/~repairs/"


def items_prefix(run: str) -> str:
    return f"{run}/~items/"


def items_key(run: str, chunk: int) -> str:
    return f"{items_prefix(run)}{chunk:06}"


def drawn_prefix(run: str) -> str:
    """Items that were drawn one at a time, in the order in which they were."""
    return f"{run}/~drawn/"


def drawn_key(run: str, number: int) -> str:
    return f"{drawn_prefix(run)}{number:08}"


def drawn_order_prefix(run: str) -> str:
    return f"{run}/~drawn-order/"


def trainer_step_prefix(run: str) -> str:
    return f"{run}/~trainer-step/"


def registration_prefix(run: str) -> str:
    return f"{run}/~registration/"


def run_lock_prefix(run: str) -> str:
    return f"{run}/~lock/"
