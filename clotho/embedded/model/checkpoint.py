"""Reading a safetensors checkpoint without torch."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import deserialize

from clotho.embedded.model.exact import Array
from clotho.errors import InvalidInput


@dataclass(frozen=True)
class Checkpoint:
    tensors: Mapping[str, Array]
    version: str
    """The first 16 hexadecimal digits of the file's SHA-256."""


def read_checkpoint(directory: Path) -> Checkpoint:
    """The model.safetensors of `directory` in float64. Raises InvalidInput for other than BF16 and F32 tensors."""
    content = (directory / "model.safetensors").read_bytes()
    tensors = {
        name: _as_float64(name, tensor["dtype"], tensor["data"]).reshape(tensor["shape"])
        for name, tensor in deserialize(content)  # type: ignore[no-untyped-call]
    }
    return Checkpoint(tensors, hashlib.sha256(content).hexdigest()[:16])


def _as_float64(name: str, dtype: str, content: bytes) -> Array:
    match dtype:
        case "F32":
            return np.frombuffer(content, "<f4").astype(np.float64)
        case "BF16":
            # bfloat16 is the upper half of float32.
            return (np.frombuffer(content, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        case _:
            raise InvalidInput(f"tensor {name} is {dtype}: use BF16 or F32")
