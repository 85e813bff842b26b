"""A model with its tokenizer and the version of its weights: what a server serves."""

from dataclasses import dataclass
from pathlib import Path

from clotho.embedded.model.checkpoint import Architecture, read_checkpoint
from clotho.embedded.model.qwen2 import Qwen2
from clotho.embedded.model.tokenizer import Tokenizer
from clotho.errors import InvalidInput


@dataclass(frozen=True)
class Policy:
    model: Qwen2
    tokenizer: Tokenizer
    version: str
    """Version of the weights: from their file's metadata, else part of its hash."""

    @classmethod
    def load(cls, directory: Path) -> "Policy":
        """Read a Hugging Face checkpoint folder. Raises InvalidInput for what the forward pass doesn't know."""
        checkpoint = read_checkpoint(directory)
        model = Qwen2(Architecture.read(directory), checkpoint.tensors)
        return cls(model, Tokenizer(directory), checkpoint.version)

    def with_weights(self, directory: Path) -> "Policy":
        """A copy with the weights that `directory` holds now. Raises InvalidInput for another model's."""
        if Architecture.read(directory) != self.model.architecture:
            raise InvalidInput(f"{directory} now holds a model of another architecture")
        checkpoint = read_checkpoint(directory)
        try:
            model = Qwen2(self.model.architecture, checkpoint.tensors)
        except (KeyError, ValueError) as error:
            raise InvalidInput(f"{directory}: these are not the model's tensors: {error!r}") from error
        return Policy(model, self.tokenizer, checkpoint.version)
