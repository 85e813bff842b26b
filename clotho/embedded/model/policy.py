"""A model with its tokenizer and the version of its weights: what a server serves."""

from dataclasses import dataclass
from pathlib import Path

from clotho.embedded.model.architecture import Architecture
from clotho.embedded.model.checkpoint import read_checkpoint
from clotho.embedded.model.qwen2 import Qwen2
from clotho.embedded.model.tokenizer import Tokenizer


@dataclass(frozen=True)
class Policy:
    model: Qwen2
    tokenizer: Tokenizer
    version: str
    """Of the weights: part of their hash."""

    @classmethod
    def load(cls, directory: Path) -> "Policy":
        """Read a Hugging Face checkpoint folder. Raises InvalidInput for what the forward pass doesn't know."""
        checkpoint = read_checkpoint(directory)
        model = Qwen2(Architecture.read(directory), checkpoint.tensors)
        return cls(model, Tokenizer(directory), checkpoint.version)
