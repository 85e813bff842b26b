"""Reading a safetensors checkpoint without torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize

from clotho.embedded.model.exact import Array
from clotho.errors import InvalidInput

VERSION_KEY = "weight_version"
"""In a file's metadata: how its writer calls these weights."""


@dataclass(frozen=True)
class Checkpoint:
    tensors: Mapping[str, Array]
    version: str
    """As the file says, else the first 16 hexadecimal digits of its SHA-256."""


def read_checkpoint(directory: Path) -> Checkpoint:
    """The model.safetensors of `directory` in float64.

    Raises InvalidInput for a damaged file and for other than BF16 and F32 tensors.
    """
    path = directory / "model.safetensors"
    content = path.read_bytes()
    try:
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
