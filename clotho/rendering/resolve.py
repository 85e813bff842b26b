"""Which renderer fits a model: by its name, or as configured."""

from clotho.rendering.base import Renderer


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
    known ones), tokenizers that can't be loaded, and models without a chat template.
    """
    raise NotImplementedError
