"""The rewards that a verifier left below /logs/verifier, or the reason why there are none."""

import json
import math
from collections.abc import Mapping
from typing import Any

from clotho.errors import VerificationFailed

LARGEST_REWARD_FILE = 1 << 20
SHOWN = 60


def parse_rewards(reward_json: bytes | None, reward_txt: bytes | None) -> dict[str, float]:
    """The finite numbers of reward.json, which counts if it is there, else the one of reward.txt.

    Raises VerificationFailed for everything else.
    """
    if reward_json is not None:
        return _from_json(_decoded("reward.json", reward_json))
    if reward_txt is None:
        raise VerificationFailed("the verifier wrote neither reward.json nor reward.txt")
    return {"reward": _from_text(_decoded("reward.txt", reward_txt))}


def score_of(rewards: Mapping[str, float]) -> float:
    """The reward named `reward`, else the mean of all."""
    return rewards.get("reward", sum(rewards.values()) / len(rewards))


def _decoded(name: str, content: bytes) -> str:
    if not content:
        raise VerificationFailed(f"{name} is empty")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise VerificationFailed(f"{name} isn't UTF-8 text") from error


def _from_text(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise VerificationFailed(f"reward.txt isn't one number: {text[:SHOWN]!r}") from error
    if not math.isfinite(value):
        raise VerificationFailed(f"reward.txt isn't a finite number: {text[:SHOWN]!r}")
    return value


def _from_json(text: str) -> dict[str, float]:
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise VerificationFailed(f"reward.json isn't JSON: {text[:SHOWN]!r}") from error
    if not isinstance(value, dict) or not value:
        raise VerificationFailed(f"reward.json must be an object of named numbers: {text[:SHOWN]!r}")
    return {name: _number(name, each) for name, each in value.items()}


def _number(name: str, value: Any) -> float:
    # true is an int, and 1.0 as in Harbor
    if not isinstance(value, int | float):
        raise VerificationFailed(f"reward.json: {name[:SHOWN]!r} isn't a number")
    try:
        number = float(value)
    except OverflowError:  # JSON has integers of any length
        number = math.inf
    if not math.isfinite(number):
        raise VerificationFailed(f"reward.json: {name[:SHOWN]!r} isn't finite")
    return number


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name is given twice")
    return dict(pairs)
