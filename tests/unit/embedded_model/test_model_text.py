"""Tokens to text: characters and stop strings that span tokens."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.tokenizer import Templated, TextStream, Tokenizer

TOKENIZER = Tokenizer(BUNDLED)
REFERENCE = PreTrainedTokenizerFast.from_pretrained(BUNDLED)


def stream(*stop: str, include_stop: bool = False, keep_special: bool = False) -> TextStream:
    return TextStream(TOKENIZER, stop, include_stop=include_stop, keep_special=keep_special)


def pushed(text: TextStream, tokens: list[int]) -> tuple[list[str], str | None]:
    """The pieces up to the end, and the stop string that ended them."""
    pieces = []
    for token in tokens:
        piece, stopped = text.push(token)
        pieces.append(piece)
        if stopped is not None:
            return pieces, stopped
    return [*pieces, text.finish()], None


@given(st.lists(st.integers(0, 571), max_size=40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_pieces_join_to_what_transformers_decodes(tokens: list[int], keep_special: bool) -> None:
    pieces, _ = pushed(stream(keep_special=keep_special), tokens)
    assert "".join(pieces) == REFERENCE.decode(tokens, skip_special_tokens=not keep_special)


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_text_survives_tokens(text: str) -> None:
    pieces, _ = pushed(stream(keep_special=True), TOKENIZER.encode(text))
    assert "".join(pieces) == text


def test_a_character_appears_when_its_last_byte_does() -> None:
    tokens = TOKENIZER.encode("a🙂b")
    assert len(tokens) > 3
    pieces, _ = pushed(stream(), tokens)
    assert [piece for piece in pieces if piece] == ["a", "🙂", "b"]


@given(st.text("abc", max_size=12), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_stop_strings_end_the_text_wherever_tokens_end(text: str, stops: list[str]) -> None:
    tokens = [TOKENIZER.encode(character)[0] for character in text]
    pieces, stopped = pushed(stream(*stops), tokens)
    # The text that has arrived when the first stop string is complete.
    ends = [at + len(stop) for stop in stops if (at := text.find(stop)) >= 0]
    if not ends:
        assert (stopped, "".join(pieces)) == (None, text)
    else:
        arrived = text[: min(ends)]
        assert stopped in stops
        assert "".join(pieces) == arrived[: arrived.find(stopped)]


@pytest.mark.parametrize(("include", "expected"), [(False, "one "), (True, "one two")])
def test_the_stop_string_itself(include: bool, expected: str) -> None:
    pieces, stopped = pushed(stream("two", include_stop=include), TOKENIZER.encode("one two three"))
    assert ("".join(pieces), stopped) == (expected, "two")


def test_words_that_start_like_contractions_keep_their_trained_tokens() -> None:
    # Qwen2Tokenizer, which AutoTokenizer picks, would take 't off "'text".
    assert TOKENIZER.encode("'text") == TOKENIZER.encode("'") + TOKENIZER.encode("text")


TEMPLATE = """
{%- for message in messages %}
    {%- if loop.index > 3 %}{% break %}{% endif %}
    {%- if message.role == "assistant" %}{% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}
    {%- else %}{{ message | tojson }}
    {% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ bos_token }}{{ tools | tojson(indent=1) }}{% endif %}"""


def test_a_template_writes_what_it_writes_with_transformers(tmp_path: Path) -> None:
    directory = shutil.copytree(BUNDLED, tmp_path / "model")
    (directory / "chat_template.jinja").unlink()
    config = json.loads((directory / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "tool_use", "template": "another"},
        {"name": "default", "template": TEMPLATE},
    ]
    config["bos_token"] = {"__type": "AddedToken", "content": "<|im_start|>", "special": True}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    messages: list[Templated] = [
        {"role": "user", "content": "é <b>&"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "and?"},
        {"role": "user", "content": "left out"},
    ]
    tools: list[Templated] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    theirs = PreTrainedTokenizerFast.from_pretrained(directory).apply_chat_template(
        messages,
        tools=tools,
        chat_template=TEMPLATE,
        add_generation_prompt=True,
        tokenize=False,
    )
    assert Tokenizer(directory).render(messages, tools) == theirs
