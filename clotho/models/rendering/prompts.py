"""The prompt of the next turn: what was sampled, extended; rendered afresh where that can't be."""

from collections.abc import Sequence

from clotho.models.backend import PriorTurn
from clotho.models.messages import ChatMessage, ToolSchema
from clotho.models.rendering.renderer import Renderer


def next_prompt(
    renderer: Renderer,
    messages: Sequence[ChatMessage],
    tools: Sequence[ToolSchema],
    prior: PriorTurn | None,
) -> tuple[int, ...]:
    """The ids to sample the next turn from; begins with `prior`'s tokens wherever the history allows.

    A history that doesn't begin with the messages of `prior`, since a turn was edited or the context
    compacted, is rendered afresh. Raises InvalidInput.
    """
    if prior is not None:
        known = len(prior.messages)
        if tuple(messages[:known]) == prior.messages:
            bridged = renderer.bridge(prior.tokens.prompt_ids, prior.tokens.ids, messages[known:], tools)
            if bridged is not None:
                return bridged
    return renderer.render(messages, tools)
