"""Reward files: named finite numbers, or no reward."""

import pytest

from clotho.errors import VerificationFailed
from clotho.plugins.task_folders.rewards import parse_rewards, score_of


@pytest.mark.parametrize(
    ("json", "txt", "rewards"),
    [
        (None, b"1", {"reward": 1.0}),
        (None, b" 1e3\n", {"reward": 1000.0}),
        (None, b"-0.25\r\n", {"reward": -0.25}),
        (None, b"1_000", {"reward": 1000.0}),
        (b'{"accuracy": 0.5, "format": 1}', b"0", {"accuracy": 0.5, "format": 1.0}),
        (b'{"reward": true}', b"junk", {"reward": 1.0}),
    ],
)
def test_rewards_are_read(json: bytes | None, txt: bytes | None, rewards: dict[str, float]) -> None:
    assert parse_rewards(json, txt) == rewards


@pytest.mark.parametrize(
    "txt", [b"true", b"1 # ok", b"1\n2", b"\n", b"", b"nan", b"inf", b"1e309", b"\xff", None]
)
def test_other_text_is_no_reward(txt: bytes | None) -> None:
    with pytest.raises(VerificationFailed):
        parse_rewards(None, txt)


@pytest.mark.parametrize(
    "json",
    [
        *(b'{"a": "1"}', b'{"a": null}', b'{"a": {"b": 1}}', b"[1]", b'{"a": NaN}', b'{"a": 1e309}', b"0.5"),
        *(b"{}", b"", b'\xef\xbb\xbf{"a": 1}', b'{"a": "\xff"}', b'{"a": 1, "a": 2}', b"[" * 100_000, b"{"),
        b'{"a": 1' + b"0" * 400 + b"}",
    ],
)
def test_other_json_is_no_reward_even_beside_a_good_text(json: bytes) -> None:
    with pytest.raises(VerificationFailed):
        parse_rewards(json, b"1")


def test_the_score_is_the_reward_of_that_name_or_the_mean() -> None:
    assert score_of({"reward": 0.25, "style": 1.0}) == 0.25
    assert score_of({"accuracy": 0.5, "format": 1.0}) == 0.75
