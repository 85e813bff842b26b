"""Sampling parameters of turns."""

from pydantic import Field, JsonValue, field_validator

from clotho.frozen_model import FrozenModel

RESERVED = frozenset({"messages", "model", "n", "stream", "tools"})


DISTRIBUTION_CHANGING = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "frequency_penalty",
        "guided_json",
        "logit_bias",
        "min_tokens",
        "presence_penalty",
        "structured_outputs",
    }
)
"""Further fields of servers that change the distribution that tokens are sampled from."""


class Sampling(FrozenModel):
    """Sampling parameters. All are sent, so that no server default applies; None leaves one out.

    The defaults change nothing about the model's distribution. Providers that refuse fields outside the
    OpenAI API need top_k, min_p and repetition_penalty set to None.
    """

    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = -1
    """-1 is off."""
    min_p: float | None = 0.0
    repetition_penalty: float | None = 1.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    """Token-exact backends add those that end an assistant's turn."""
    seed: int | None = None
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of the request's body, passed through; they win over the fields above."""

    @property
    def distribution_changes(self) -> tuple[str, ...]:
        """The parameters that change the distribution from the model's at temperature 1.

        A parameter that is left to the server counts as one.
        """
        reshaping = {
            "temperature": self.temperature != 1.0,
            "top_p": self.top_p != 1.0,
            "top_k": self.top_k not in (-1, 0),
            "min_p": self.min_p != 0.0,
            "repetition_penalty": self.repetition_penalty != 1.0,
        }
        own = [name for name, does in reshaping.items() if does]
        return (*own, *sorted(name for name in DISTRIBUTION_CHANGING if self.extra_body.get(name)))

    @field_validator("extra_body")
    @classmethod
    def _keeps_the_turn(cls, extra_body: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if taken := RESERVED & extra_body.keys():
            raise ValueError(f"extra_body can't set {', '.join(sorted(taken))}")
        return extra_body
