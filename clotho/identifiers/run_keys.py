"""Journal keys of a run."""

RUNS = "~runs/"
"""Prefix of all manifests: no run's name starts with a tilde."""


def manifest_key(run: str) -> str:
    return f"{RUNS}{run}"


DELETED = "~deleted/"
"""Prefix of the marks of deleted runs."""


def deleted_key(run: str) -> str:
    return f"{DELETED}{run}"


def endpoint_prefix(run: str) -> str:
    return f"{run}/~endpoint/"


def capabilities_prefix(run: str) -> str:
    return f"{run}/~capabilities/"


def campaign_request_prefix(run: str) -> str:
    return f"{run}/~campaign-request/"


def pause_prefix(run: str) -> str:
    return f"{run}/~pause/"


def repairs_prefix(run: str) -> str:
    return f"{run}/~repairs/"


def items_prefix(run: str) -> str:
    return f"{run}/~items/"


def items_key(run: str, chunk: int) -> str:
    return f"{items_prefix(run)}{chunk:06}"


def adapter_items_prefix(run: str) -> str:
    """Items that the adapter took one at a time, in order."""
    return f"{run}/~adapter-items/"


def adapter_item_key(run: str, number: int) -> str:
    return f"{adapter_items_prefix(run)}{number:08}"


def adapter_config_prefix(run: str) -> str:
    return f"{run}/~adapter-config/"


def trainer_step_prefix(run: str) -> str:
    return f"{run}/~trainer-step/"


def registration_prefix(run: str) -> str:
    return f"{run}/~registration/"


def run_lock_prefix(run: str) -> str:
    return f"{run}/~lock/"
