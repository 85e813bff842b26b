"""A model's tokenizer and the little of its configuration that rendering needs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from renderers.base import TRUSTED_REVISIONS, load_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import cached_file

from clotho.errors import InvalidInput
from clotho.rendering.messages import Templated

Described = dict[str, JsonValue]


class Tokenizer:
    """A tokenizer with its chat template, fit to be used by several threads at once.

    Raises InvalidInput where none can be loaded from `name`, a name on the Hugging Face hub or a folder.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.loaded = _load(name)
        self.size = len(self.loaded)
        self.added = {content.content: id for id, content in self.loaded.added_tokens_decoder.items()}
        config, generation = _file(name, "config.json"), _file(name, "generation_config.json")
        architectures = config.get("architectures")
        self.architectures = tuple(map(str, architectures)) if isinstance(architectures, list) else ()
        self.end_ids = tuple(
            dict.fromkeys([*_ids(self.loaded.eos_token_id), *_ids(generation.get("eos_token_id"))])
        )

    @property
    def has_template(self) -> bool:
        return bool(self.loaded.chat_template)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.loaded.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` as it is, special tokens included."""
        text: str = self.loaded.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def template(
        self, messages: Sequence[Templated], tools: Sequence[Described], *, add_generation_prompt: bool
    ) -> str:
        """The conversation as the chat template writes it; raises whatever the template does."""
        text: str = self.loaded.apply_chat_template(
            list(messages),
            tools=list(tools) or None,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
        return text


def _load(name: str) -> Any:
    try:
        loaded = _loaded(name)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no tokenizer can be loaded from {name!r}: {error}") from error
    if loaded.is_fast:
        # Setting these anew for each call would disturb the calls of other threads.
        loaded.backend_tokenizer.no_truncation()
        loaded.backend_tokenizer.no_padding()
    return loaded


def _loaded(name: str) -> Any:
    if name in TRUSTED_REVISIONS:
        return load_tokenizer(name)
    # AutoTokenizer goes by the model's type, and puts that type's pre-tokenizer in the place of the model's own.
    described = _path(name, "tokenizer.json") is not None
    return (PreTrainedTokenizerFast if described else AutoTokenizer).from_pretrained(name)


def _path(name: str, file: str) -> str | None:
    if Path(name).is_dir():
        path = Path(name, file)
        return str(path) if path.is_file() else None
    found: str | None = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    return found


def _file(name: str, file: str) -> Described:
    path = _path(name, file)
    if path is None:
        return {}
    try:
        described = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"{file} of {name!r} is no JSON: {error}") from error
    return described if isinstance(described, dict) else {}


def _ids(value: JsonValue) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, int)]
