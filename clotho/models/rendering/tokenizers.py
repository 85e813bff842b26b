"""A model's tokenizer and the little of its configuration that rendering needs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE
from huggingface_hub.errors import LocalEntryNotFoundError
from pydantic import JsonValue
from renderers.base import TRUSTED_REVISIONS, load_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import cached_file

from clotho.errors import InvalidInput, TokenizerUnavailable
from clotho.models.messages import TokenIds
from clotho.models.rendering.messages import Literals, TemplateMessage, drop_marks

Described = dict[str, JsonValue]
HUB_SECONDS = 5.0
"""Short, since the hub's own client would retry for minutes."""


class Tokenizer:
    """A tokenizer with its chat template, fit to be used by several threads at once.

    `name` is one on the Hugging Face hub, or a folder. Raises InvalidInput where no tokenizer can be loaded from
    it, and TokenizerUnavailable while the hub can't be reached.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        _require_hub(name)
        try:
            self.loaded = _loaded(name)
            config, generation = _described(name, "config.json"), _described(name, "generation_config.json")
        except (OSError, ValueError) as error:
            # transformers raises OSError for an outage and for an unknown name alike
            if isinstance(error.__cause__, LocalEntryNotFoundError) and not HF_HUB_OFFLINE:
                raise _unavailable(name, error) from error
            raise InvalidInput(
                f"no tokenizer can be loaded from {name!r}: {error}; give another with --tokenizer"
            ) from error
        self.size = len(self.loaded)
        added = self.loaded.added_tokens_decoder
        self.added = {token.content: id for id, token in added.items()}
        self.literals = self._literals({token.content for token in added.values() if token.special})
        architectures = config.get("architectures")
        self.architectures = tuple(map(str, architectures)) if isinstance(architectures, list) else ()
        self.end_ids = tuple(
            dict.fromkeys([*_ids(self.loaded.eos_token_id), *_ids(generation.get("eos_token_id"))])
        )

    @property
    def has_template(self) -> bool:
        return bool(self.loaded.chat_template)

    def _literals(self, special: set[str]) -> Literals:
        """The marks that keep special tokens out of texts; none for a custom tokenizer, which keeps marks."""
        if not self.loaded.is_fast:
            # `drop_marks` needs the pre-tokenizer of a fast one
            return Literals((), ())
        drop_marks(self.loaded)
        template = str(self.loaded.chat_template)
        return Literals(special, {token for token in self.added.keys() - special if token in template})

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.loaded.encode(text, add_special_tokens=False))

    def decode(self, ids: TokenIds) -> str:
        """The text of `ids` as it is, special tokens included."""
        text: str = self.loaded.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def template(
        self, messages: Sequence[TemplateMessage], tools: Sequence[Described], *, add_generation_prompt: bool
    ) -> str:
        """The conversation as the chat template writes it; raises whatever the template does."""
        text: str = self.loaded.apply_chat_template(
            list(messages),
            tools=list(tools) or None,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
        return text


def _require_hub(name: str) -> None:
    """Raise TokenizerUnavailable where nothing of it is on this machine, and the hub doesn't answer."""
    kept = Path(HF_HUB_CACHE, f"models--{name.replace('/', '--')}", "snapshots")
    # a hub's name has one slash at most
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if HF_HUB_OFFLINE or is_path or Path(name).is_dir() or kept.is_dir():
        return
    try:
        # any answer will do: what the hub has of this name is its client's to say
        httpx.head(ENDPOINT, timeout=HUB_SECONDS)
    except httpx.HTTPError as error:
        raise _unavailable(name, error) from error


def _unavailable(name: str, error: Exception) -> TokenizerUnavailable:
    return TokenizerUnavailable(
        f"the tokenizer of {name!r} isn't on this machine and can't be fetched from {ENDPOINT} ({error}): "
        "give the name or folder of another with --tokenizer"
    )


def _loaded(name: str) -> Any:
    if name in TRUSTED_REVISIONS:
        loaded = load_tokenizer(name)
    else:
        # AutoTokenizer goes by the model's type, and puts that type's pre-tokenizer in place of the model's own.
        whole = _path(name, "tokenizer.json") is not None
        loaded = (PreTrainedTokenizerFast if whole else AutoTokenizer).from_pretrained(name)
    if loaded.is_fast:
        # Setting these anew for each call would disturb the calls of other threads.
        loaded.backend_tokenizer.no_truncation()
        loaded.backend_tokenizer.no_padding()
    return loaded


def _path(name: str, file: str) -> str | None:
    if Path(name).is_dir():
        path = Path(name, file)
        return str(path) if path.is_file() else None
    found: str | None = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    return found


def _described(name: str, file: str) -> Described:
    path = _path(name, file)
    described = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return described if isinstance(described, dict) else {}


def _ids(value: JsonValue) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, int)]
