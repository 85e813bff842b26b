"""Seeds and job keys derived from names."""

import hashlib


def derived_seed(*parts: str | int) -> int:
    """A 63-bit seed that depends on nothing but `parts`.

    Of run and rollout: a rollout's seed (`activities/groups.py`). Of that and a turn: the turn's
    (`activities/llm.py`). Of that and an offset: the seed of the rest of an interrupted turn
    (`clotho/models/token_exact.py`).
    """
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def job_key(*parts: str | int) -> str:
    """The key of a job in a sandbox: 32 hexadecimal digits."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
