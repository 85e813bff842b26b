"""Names of weight versions: a model server's own, or the trainer's step where the server has none."""

UNNAMED = "default"
"""What vLLM and SGLang say of weights that nobody gave a version."""
STEP = "step:"


def at_step(step: int) -> str:
    """The weights as the trainer's step `step` knew them: not the server's word."""
    return f"{STEP}{step}"


def step_of(version: str) -> int | None:
    """The trainer's step that a version stands for: servers that are given versions are given steps.

    None for a version that is no number.
    """
    number = version.removeprefix(STEP)
    return int(number) if number.isdecimal() else None
