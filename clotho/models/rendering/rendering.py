"""The tokenizer, renderer and tool-call parser of a run."""

from importlib.util import find_spec

from clotho_client.orders import Rendering as OrderedRendering

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.models.tool_call_parsers import family_parser, model_name


class Rendering(OrderedRendering, FrozenModel):
    """The names of a run's tokenizer, renderer and parser, which `clotho.models.rendering.resolve` opens."""

    def named(self, model: str) -> "Rendering":
        """The rendering with a tokenizer, by default that of `model`, and the tool-call parser of that name."""
        tokenizer = self.tokenizer or model
        reads = self.tool_call_parser or family_parser(model_name(tokenizer))
        return self.model_copy(update={"tokenizer": tokenizer, "tool_call_parser": reads})


TOKENS_EXTRA = "pip install 'clotho-rollouts[tokens]'"


def missing_packages() -> list[str]:
    """Packages of the extra `tokens` that aren't installed."""
    return [name for name in ("renderers", "transformers") if find_spec(name) is None]


def require_packages() -> None:
    """Raise InvalidInput with the `pip install` line where a package that renders is missing."""
    if missing := missing_packages():
        raise InvalidInput(
            f"token-exact inference needs what this worker lacks, {' and '.join(missing)}: {TOKENS_EXTRA}"
        )
