"""Journal keys of a run, and prefixes of those that are numbered."""

from clotho.identifiers.ids import below

RUNS = "~runs/"
"""Prefix of all manifests: no run's name starts with a tilde."""
# not below the run's own prefix, which a deletion empties
DELETED = "~deleted/"
"""Prefix of the marks of deleted runs."""

opened_key = below("~opened")
endpoint_prefix = below("~endpoint/")
capabilities_prefix = below("~capabilities/")
campaign_request_prefix = below("~campaign-request/")
pause_prefix = below("~pause/")
"""The log of what is paused: the run, its groups, its rollouts."""
budget_prefix = below("~budget/")
spending_prefix = below("~spending/")
"""Prefix of the pages of spending, each of one model process."""
repairs_prefix = below("~repairs/")
items_prefix = below("~items/")
adapter_items_prefix = below("~adapter-items/")
"""Items that the adapter took one at a time, in order."""
adapter_config_prefix = below("~adapter-config/")
trainer_step_prefix = below("~trainer-step/")
registration_prefix = below("~registration/")
code_prefix = below("~code/")
"""Prefix of the source of the run's environment, by the number of the request for it."""
code_asked_prefix = below("~code-asked/")
"""The log of requests to take the environment's code as it is then."""
run_lock_prefix = below("~lock/")


def claims_prefix(run: str, sequence: str) -> str:
    """The log of who claimed which of a sequence's groups."""
    return f"{run}/~claims-{sequence}/"


def artifact_key(run: str, digest: str) -> str:
    """The key of an archive of files that rollouts left."""
    return f"{run}/~artifact/{digest}"


def manifest_key(run: str) -> str:
    return f"{RUNS}{run}"


def deleted_key(run: str) -> str:
    return f"{DELETED}{run}"


def items_key(run: str, chunk: int, start: int = 0) -> str:
    """The key of a chunk of items, or of the part of it that begins at its item `start`."""
    return f"{items_prefix(run)}{chunk:06}{f'-{start:02}' if start else ''}"


def adapter_item_key(run: str, number: int) -> str:
    return f"{adapter_items_prefix(run)}{number:08}"
