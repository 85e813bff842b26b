"""Journal keys of a rollout."""


def prompt_key(rollout: str) -> str:
    return f"{rollout}/prompt"


def turn_prefix(rollout: str) -> str:
    return f"{rollout}/turn/"


def turn_key(rollout: str, turn: int) -> str:
    return f"{turn_prefix(rollout)}{turn:04}"


def streams_prefix(rollout: str) -> str:
    return f"{rollout}/stream/"


def stream_prefix(turn: str) -> str:
    """Prefix of the write-ahead of the turn at key `turn`."""
    rollout, _, number = turn.rpartition("/turn/")
    return f"{streams_prefix(rollout)}{number}/"


def call_key(rollout: str, call: str) -> str:
    return f"{rollout}/call/{call}"


def lease_key(rollout: str, number: int) -> str:
    return f"{rollout}/lease/{number}"


def final_key(rollout: str) -> str:
    """The checkpoint before verification."""
    return f"{rollout}/final"


def blob_key(rollout: str, digest: str) -> str:
    return f"{rollout}/checkpoint/{digest}"


def epoch_prefix(rollout: str) -> str:
    return f"{rollout}/epoch/"


def reward_key(rollout: str) -> str:
    return f"{rollout}/reward"


def end_key(rollout: str) -> str:
    return f"{rollout}/end"


def sealed_key(rollout: str) -> str:
    return f"{rollout}/sealed"
