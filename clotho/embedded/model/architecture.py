"""The shape of a Qwen2 model as its config.json states it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from clotho.errors import InvalidInput


class RopeParameters(BaseModel):
    rope_theta: float
    rope_type: Literal["default"]


class Architecture(BaseModel):
    """The fields of a Hugging Face Qwen2 config.json that the forward pass depends on."""

    model_config = ConfigDict(frozen=True)

    model_type: Literal["qwen2"]
    hidden_act: Literal["silu"]
    use_sliding_window: Literal[False] = False
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    vocab_size: int
    rms_norm_eps: float
    eos_token_id: int | tuple[int, ...]
    rope_parameters: RopeParameters

    @classmethod
    def read(cls, directory: Path) -> "Architecture":
        """Raises InvalidInput for a model that the forward pass would get wrong."""
        path = directory / "config.json"
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise InvalidInput(f"{path}: {error}") from error

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset([self.eos_token_id] if isinstance(self.eos_token_id, int) else self.eos_token_id)
