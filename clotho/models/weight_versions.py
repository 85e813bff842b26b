"""Names of weight versions: a model server's own, or the trainer's step where the server has none."""

UNNAMED = "default"
"""The name that vLLM and SGLang give weights without a version."""
STEP = "step:"


def at_step(step: int) -> str:
    """The version named after the trainer's step, if the server names none."""
    return f"{STEP}{step}"


def step_of(version: str) -> int | None:
    """The trainer's step of a version; None if it is no number."""
    number = version.removeprefix(STEP)
    return int(number) if number.isdecimal() else None
