"""The renderer and tool-call parser of a model: by its name, or as configured."""

import re

from renderers import __version__ as package_version
from renderers.base import MODEL_RENDERER_MAP

from clotho.errors import InvalidInput
from clotho.models.rendering import packaged
from clotho.models.rendering.packaged import PackagedRenderer
from clotho.models.rendering.renderer import Renderer
from clotho.models.rendering.template_renderer import TemplateRenderer
from clotho.models.rendering.tokenizers import Tokenizer
from clotho.models.tool_call_parsers import PARSERS, family_parser, model_name, parser

TEMPLATE = "template"
"""The renderer for whatever has a chat template."""
OWN = "renderer"
"""The tool-call parser that a hand-coded renderer is itself."""


def open_renderer(
    tokenizer: str,
    *,
    renderer: str | None = None,
    tool_call_parser: str | None = None,
    thinking_mode: bool = False,
) -> Renderer:
    """The renderer for the model at `tokenizer`, a name on the Hugging Face hub or a folder.

    `renderer` unset: the one made for a model of exactly this name, else the model's own chat template
    ("template"). `tool_call_parser` unset: the parser of the model's family, by its name, its architecture or its
    renderer's name, so that the same weights are read alike under any name; without one, or as "renderer", the
    renderer's own way.
    `thinking_mode`: think blocks stay in the history that later turns see; otherwise the template decides.

    Reads files, and may download them: call it in a thread. Raises InvalidInput for unknown names (listing the
    known ones), tokenizers that can't be loaded or don't fit the renderer, and models without a chat template;
    ModelUnavailable while the hub can't be reached.
    """
    chosen = _checked(renderer) if renderer else MODEL_RENDERER_MAP.get(tokenizer, TEMPLATE)
    if tool_call_parser == OWN and chosen == TEMPLATE:
        raise InvalidInput(
            f"tool-call parser {OWN!r} is that of a hand-coded renderer: name one with --renderer"
        )
    if tool_call_parser not in (None, OWN):
        # an unknown name is told before the tokenizer is loaded, and maybe downloaded
        parser(tool_call_parser)
    loaded = Tokenizer(tokenizer)
    names = [chosen] if chosen != TEMPLATE else []
    family = tool_call_parser or family_parser(model_name(tokenizer), [*loaded.architectures, *names])
    calls = parser(family) if family not in (None, OWN) else None
    reasoning = "kept in the history" if thinking_mode else "in the history as the template has it"
    if chosen != TEMPLATE:
        return PackagedRenderer(
            loaded,
            chosen,
            calls,
            thinking_mode=thinking_mode,
            description=f"{tokenizer}: renderer {chosen} of renderers {package_version}, "
            f"tool calls read by {family if calls else 'it'}, reasoning {reasoning}",
        )
    return TemplateRenderer(
        loaded,
        calls,
        thinking_mode=thinking_mode,
        description=f"{tokenizer}: its own chat template, "
        f"{f'tool calls read by {family}' if calls else 'no tool calls'}, reasoning {reasoning}",
        without_parser=_without_parser(tokenizer, loaded.architectures),
    )


def _checked(renderer: str) -> str:
    known = (TEMPLATE, *packaged.names())
    if renderer not in known:
        raise InvalidInput(f"renderer {renderer!r} is unknown; use one of {', '.join(known)}")
    return renderer


def _without_parser(tokenizer: str, architectures: tuple[str, ...]) -> str:
    """Advice for a model whose calls none of the named parsers is known to read."""
    known = [_letters(name) for name in (model_name(tokenizer), *architectures)]
    likely = [name for name in packaged.names() if any(_letters(name) in each for each in known)]
    if likely:
        return (
            f"no tool-call parser is known for {tokenizer!r}: give --renderer {max(likely, key=len)}, "
            "which reads its own format"
        )
    return (
        f"how {tokenizer!r} writes tool calls can't be told by its name: give --tool-call-parser, one of "
        f"{', '.join(PARSERS)}, or the --renderer that is made for it, one of {', '.join(packaged.names())}"
    )


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
