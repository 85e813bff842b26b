"""The hand-coded renderers of the `renderers` package behind Clotho's protocol."""

import json
from typing import Any, get_args

import renderers
from renderers.configs import config_from_name

from clotho.errors import InvalidInput
from clotho.models.messages import Messages, TokenIds, Tools
from clotho.models.rendering.messages import for_template
from clotho.models.rendering.renderer import ReadAnswer, Renderer
from clotho.models.rendering.tokenizers import Tokenizer
from clotho.models.tool_call_parsers import ParsedAnswer, ParsedCall, ToolCallParser
from clotho.models.tool_call_parsers.parser import parsed_call

READABLE = frozenset({renderers.ToolCallParseStatus.OK, renderers.ToolCallParseStatus.UNKNOWN_TOOL})
"""A call of a tool that wasn't offered is a call: its result tells the model so."""


class PackagedRenderer(Renderer):
    """The package's renderer `name` on `tokenizer`; `parser` reads tool calls in its stead.

    `thinking_mode` extends what was sampled across user messages, where the templates of reasoning models
    would drop the think blocks before them. Raises InvalidInput for a tokenizer without the format's tokens.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        name: str,
        parser: ToolCallParser | None,
        *,
        thinking_mode: bool,
        description: str,
    ) -> None:
        self._renderer = _created(tokenizer, name, thinking_mode)
        stops = self._renderer.get_stop_token_ids()
        super().__init__(tokenizer, parser, stops, thinking_mode=thinking_mode, description=description)

    def render(
        self, messages: Messages, tools: Tools = (), *, add_generation_prompt: bool = True
    ) -> tuple[int, ...]:
        try:
            ids = self._renderer.render_ids(
                for_template(messages, self._tokenizer.literals),
                tools=list(tools) or None,
                add_generation_prompt=add_generation_prompt,
            )
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the model's chat format refuses the messages: {error}") from error
        return tuple(ids)

    def bridge(
        self, prompt_ids: TokenIds, completion_ids: TokenIds, new_messages: Messages, tools: Tools = ()
    ) -> tuple[int, ...] | None:
        previous = [*prompt_ids, *completion_ids]
        bridged = self._renderer.bridge_to_next_turn(
            list(prompt_ids),
            list(completion_ids),
            for_template(new_messages, self._tokenizer.literals),
            tools=list(tools) or None,
        )
        # checked here, too: nothing else keeps changed tokens from being trained on
        if bridged is None or bridged.token_ids[: len(previous)] != previous:
            return None
        return tuple(bridged.token_ids)

    def parse(
        self, completion_ids: TokenIds, tools: Tools = (), *, prompt_ids: TokenIds, turn_key: str
    ) -> ReadAnswer:
        if self._parser is not None:
            return super().parse(completion_ids, tools, prompt_ids=prompt_ids, turn_key=turn_key)
        try:
            parsed = self._renderer.parse_response(
                list(completion_ids), tools=list(tools) or None, prompt_ids=list(prompt_ids)
            )
        except (ValueError, RecursionError):
            # JSON nested too deeply or with a number too long for the interpreter: no call can be read.
            return super().parse(completion_ids, tools, prompt_ids=prompt_ids, turn_key=turn_key)
        return ReadAnswer.of(_answer(parsed, bool(tools)), parsed.reasoning_content, turn_key)


def names() -> tuple[str, ...]:
    """The package's renderers, without its generic one, which never bridges: TemplateRenderer takes its place."""
    configs, *_ = get_args(renderers.RendererConfig)
    every = {config.model_fields["name"].default for config in get_args(configs)}
    return tuple(sorted(every - {"auto", "custom", "default"}))


def _created(tokenizer: Tokenizer, name: str, thinking_mode: bool) -> Any:
    config = config_from_name(name)
    if thinking_mode:
        config = config.model_copy(update={"thinking_retention": "all"})
    try:
        return renderers.create_renderer(tokenizer.loaded, config)
    except (AssertionError, ValueError) as error:
        raise InvalidInput(
            f"renderer {name!r} doesn't fit the tokenizer of {tokenizer.name!r}: {error}"
        ) from error


def _answer(parsed: renderers.ParsedResponse, offered: bool) -> ParsedAnswer:
    """Blocks that can't be read stay text, as do all where no tools were offered."""
    calls: list[ParsedCall] = []
    pieces = [parsed.content]
    for block in parsed.tool_calls:
        if offered and block.status in READABLE and block.name:
            calls.append(parsed_call(block.name, _written(block.arguments), block.id))
        else:
            pieces.append(block.raw)
    content = "\n".join(piece for piece in pieces if piece)
    malformed = len(parsed.tool_calls) - len(calls) if offered else 0
    return ParsedAnswer(content=content, calls=tuple(calls), malformed=malformed)


def _written(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)
