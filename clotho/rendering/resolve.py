"""Which renderer fits a model: by its name, or as configured."""

from pathlib import Path

from renderers import __version__ as package_version
from renderers.base import MODEL_RENDERER_MAP

from clotho.errors import InvalidInput
from clotho.inference.tool_call_parsers import family_parser, parser
from clotho.rendering import packaged
from clotho.rendering.base import Renderer
from clotho.rendering.packaged import PackagedRenderer
from clotho.rendering.template import TemplateRenderer
from clotho.rendering.tokenizers import Tokenizer

TEMPLATE = "template"
"""The renderer for whatever has a chat template."""


def open_renderer(
    tokenizer: str,
    *,
    renderer: str | None = None,
    tool_call_parser: str | None = None,
    thinking_mode: bool = False,
) -> Renderer:
    """The renderer for the model at `tokenizer`, a name on the Hugging Face hub or a folder.

    `renderer` unset: the one made for a model of exactly this name, else the model's own chat template
    ("template"). `tool_call_parser` unset: the renderer's own way, or the parser of the model's family.
    `thinking_mode`: think blocks stay in the history that later turns see; otherwise the template decides.

    Reads files, and may download them: call it in a thread. Raises InvalidInput for unknown names (listing the
    known ones), tokenizers that can't be loaded or don't fit the renderer, and models without a chat template;
    ModelUnavailable while the hub can't be reached.
    """
    chosen = _checked(renderer) if renderer else MODEL_RENDERER_MAP.get(tokenizer, TEMPLATE)
    calls = parser(tool_call_parser) if tool_call_parser else None
    loaded = Tokenizer(tokenizer)
    reasoning = "kept in the history" if thinking_mode else "in the history as the template has it"
    if chosen != TEMPLATE:
        return PackagedRenderer(
            loaded,
            chosen,
            calls,
            thinking_mode=thinking_mode,
            description=f"{tokenizer}: renderer {chosen} of renderers {package_version}, "
            f"tool calls read by {tool_call_parser or 'it'}, reasoning {reasoning}",
        )
    family = tool_call_parser or family_parser(_model_name(tokenizer), loaded.architectures)
    return TemplateRenderer(
        loaded,
        parser(family) if family else None,
        thinking_mode=thinking_mode,
        description=f"{tokenizer}: its own chat template, "
        f"{f'tool calls read by {family}' if family else 'no tool calls'}, reasoning {reasoning}",
    )


def _checked(renderer: str) -> str:
    known = (TEMPLATE, *packaged.names())
    if renderer not in known:
        raise InvalidInput(f"renderer {renderer!r} is unknown; use one of {', '.join(known)}")
    return renderer


def _model_name(tokenizer: str) -> str:
    """A folder's own name, since those above it say nothing about the model."""
    return Path(tokenizer).resolve().name if Path(tokenizer).is_dir() else tokenizer
