"""What turns messages into token ids and sampled ids back into messages, for one model."""

from typing import Protocol

from clotho.frozen_model import FrozenModel
from clotho.models.backend import PriorTurn
from clotho.models.messages import CallDefects, ChatMessage, Messages, TokenIds, Tools


class ReadAnswer(FrozenModel):
    """A sampled answer as a message, and the calls in it that aren't run as they were written."""

    message: ChatMessage
    defects: CallDefects = CallDefects()


class Renderer(Protocol):
    """The chat format of one model. Deterministic, without I/O, and CPU-bound: call it in a thread."""

    @property
    def description(self) -> str:
        """What was resolved: the tokenizer, the renderer, the tool-call parser and the treatment of reasoning."""

    @property
    def thinking_mode(self) -> bool:
        """Whether think blocks stay in the history that later turns see, whatever the template does."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Any of these ends an assistant's turn; the one that did is the last sampled id."""

    @property
    def vocabulary_size(self) -> int:
        """Ids from here on mean nothing to the tokenizer."""

    def render(
        self, messages: Messages, tools: Tools = (), *, add_generation_prompt: bool = True
    ) -> tuple[int, ...]:
        """The conversation from its first token; raises InvalidInput where the template refuses it."""

    def bridge(
        self, prompt_ids: TokenIds, completion_ids: TokenIds, new_messages: Messages, tools: Tools = ()
    ) -> tuple[int, ...] | None:
        """The next turn's prompt: the previous prompt and completion as they are, then `new_messages`.

        None where it can't be proved that the template leaves what came before as it is.
        """

    def parse(
        self, completion_ids: TokenIds, tools: Tools = (), *, prompt_ids: TokenIds, turn_key: str
    ) -> ReadAnswer:
        """The assistant's message that was sampled after `prompt_ids`; never raises, whatever was sampled.

        Calls without an id of the model's own get one derived from `turn_key`.
        """

    def decode(self, ids: TokenIds) -> str:
        """The text of `ids`, special tokens included."""


def next_prompt(
    renderer: Renderer, messages: Messages, tools: Tools, prior: PriorTurn | None
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
