"""Seeds and job keys derived from names."""

import hashlib


def derived_seed(*parts: str | int) -> int:
    """A 63-bit seed that depends on nothing but `parts`.

    A rollout's seed derives from the run's seed and its id (`activities/groups.py`), a turn's seed from the
    rollout's and the turn's number (`activities/llm.py`), and the seed for the rest of an interrupted turn from
    the turn's and the offset (`clotho/models/token_exact.py`): repeating a seed would repeat its random numbers.
    """
    # no id holds a NUL: ('a', 'bc') and ('ab', 'c') have different seeds
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    # 63 bits fit into a signed integer of 64
    return int.from_bytes(digest[:8], "big") >> 1


def job_key(*parts: str | int) -> str:
    """32 hexadecimal digits that stand for `parts`: the key of a job in a sandbox, or of a sequence of claims."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
