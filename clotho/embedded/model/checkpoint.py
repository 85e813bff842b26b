"""A Qwen2 model's folder, read without torch: its config.json and its safetensors."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, deserialize

from clotho.embedded.model.exact import Array
from clotho.errors import InvalidInput

VERSION_KEY = "weight_version"
"""Key of the weights' version in a file's metadata."""


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
        """Read the architecture. Raises InvalidInput for a model that the forward pass would get wrong."""
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


@dataclass(frozen=True)
class Checkpoint:
    tensors: Mapping[str, Array]
    version: str
    """The version in the file's metadata, else the first 16 hexadecimal digits of its SHA-256."""


def read_checkpoint(directory: Path) -> Checkpoint:
    """The model.safetensors of `directory` in float64.

    Raises InvalidInput for a damaged file and for other than BF16 and F32 tensors.
    """
    path = directory / "model.safetensors"
    content = path.read_bytes()
    try:
        # the package has no types
        stored = deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise InvalidInput(f"{path}: {error}") from error
    tensors = {
        name: _as_float64(name, tensor["dtype"], tensor["data"]).reshape(tensor["shape"])
        for name, tensor in stored
    }
    return Checkpoint(tensors, _stated_version(content) or hashlib.sha256(content).hexdigest()[:16])


def _stated_version(content: bytes) -> str | None:
    # The length of the JSON header comes first, in eight bytes.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    stated: str | None = header.get("__metadata__", {}).get(VERSION_KEY)
    return stated


def _as_float64(name: str, dtype: str, content: bytes) -> Array:
    match dtype:
        case "F32":
            return np.frombuffer(content, "<f4").astype(np.float64)
        case "BF16":
            # bfloat16 is the upper half of float32.
            return (np.frombuffer(content, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        case _:
            raise InvalidInput(f"tensor {name} is {dtype}: use BF16 or F32")
