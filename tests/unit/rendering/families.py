"""Small models' folders in the shape of well-known families: their special tokens, short templates like theirs."""

# ruff: noqa: E501

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from clotho.embedded.model import policy

POLICY = Path(policy.__file__).parent / "weights"

CORPUS = (
    "The assistant reads a file, runs a command and says what it found.",
    '{"name": "terminal", "arguments": {"command": "ls -la", "path": "notes.txt"}}',
    "system user assistant tool function thought said 0123456789",
)

ORDINARY = re.compile(r"think|tool_call>|tool_response|arg_|｜(User|Assistant|tool)")
"""Tokens that aren't special ones in the families' own tokenizers either."""

CHATML = r"""
{%- if tools %}{{- '<|im_start|>system\nTools:\n' }}{% for tool in tools %}{{- (tool | tojson) + '\n' }}{% endfor %}{{- '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
  {%- if m.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
    {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
  {%- else %}
    {{- '<|im_start|>' + m.role + '\n' }}
    REASONING
    {{- m.content }}
    {%- for call in m.tool_calls or [] %}
      {{- '\n' if m.content or not loop.first }}
      {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}PREFILL{% endif %}
"""

LAST_ASKED = r"""
{%- set asked = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set asked.last = loop.index0 %}{% endif %}{% endfor %}
"""

WITHIN_CYCLE = r"""
    {%- if m.role == 'assistant' and m.reasoning_content and loop.index0 > asked.last %}
      {{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}
    {%- endif %}
"""

LLAMA = r"""
{{- '<|begin_of_text|>' }}
{%- for m in messages %}
  {%- if m.role == 'tool' %}{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + (m.content | tojson) + '<|eot_id|>' }}
  {%- else %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
    {%- if tools and loop.first %}{% for tool in tools %}{{- (tool | tojson) + '\n\n' }}{% endfor %}{% endif %}
    {%- if m.tool_calls %}
      {%- if m.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{% endif %}
      {%- set call = m.tool_calls[0].function %}
      {{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}' }}
    {%- else %}{{- m.content | trim }}{% endif %}
    {{- '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
"""

MISTRAL = (
    LAST_ASKED
    + r"""
{{- '<s>' }}
{%- for m in messages %}
  {%- if m.role == 'user' %}
    {%- if tools and loop.index0 == asked.last %}{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
    {{- '[INST] ' + m.content + '[/INST]' }}
  {%- elif m.role == 'tool' %}
    {%- if m.tool_call_id | length != 9 %}{{- raise_exception('ids have nine characters') }}{% endif %}
    {{- '[TOOL_RESULTS] ' + ({'content': m.content, 'call_id': m.tool_call_id} | tojson) + '[/TOOL_RESULTS]' }}
  {%- elif m.tool_calls %}
    {{- '[TOOL_CALLS] [' }}
    {%- for call in m.tool_calls %}
      {{- ', ' if not loop.first }}{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' }}
    {%- endfor %}
    {{- ']</s>' }}
  {%- elif m.role == 'assistant' %}{{- ' ' + m.content | trim + '</s>' }}
  {%- else %}{{- raise_exception('no such role') }}{% endif %}
{%- endfor %}
"""
)

DEEPSEEK = r"""
{{- '<｜begin▁of▁sentence｜>' }}
{%- for m in messages %}
  {%- if m.role == 'system' %}{{- m.content }}
  {%- elif m.role == 'user' %}{{- '<｜User｜>' + m.content }}
  {%- elif m.role == 'tool' %}
    {%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<｜tool▁outputs▁begin｜>' }}{% endif %}
    {{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<｜tool▁outputs▁end｜>' }}{% endif %}
  {%- else %}
    {{- '<｜Assistant｜>' }}
    {%- if m.tool_calls %}
      {{- '<｜tool▁calls▁begin｜>' }}
      {%- for call in m.tool_calls %}
        {{- '\n' if not loop.first }}
        {{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\n```json\n' + (call.function.arguments | tojson) + '\n```<｜tool▁call▁end｜>' }}
      {%- endfor %}
      {{- '<｜tool▁calls▁end｜>' }}
    {%- else %}{{- m.content }}{% endif %}
    {{- '<｜end▁of▁sentence｜>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{% endif %}
"""

R1 = DEEPSEEK.replace(
    "'<｜Assistant｜>' }}{% endif %}\n", "'<｜Assistant｜><think>\\n' }}{% endif %}\n"
).replace(
    "{%- else %}{{- m.content }}{% endif %}", "{%- else %}{{- m.content.split('</think>')[-1] }}{% endif %}"
)

GLM = (
    LAST_ASKED
    + r"""
{{- '[gMASK]<sop>' }}
{%- if tools %}{{- '<|system|>\n' }}{% for tool in tools %}{{- (tool | tojson) + '\n' }}{% endfor %}{% endif %}
{%- for m in messages %}
  {%- if m.role == 'tool' %}
    {%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<|observation|>' }}{% endif %}
    {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
  {%- elif m.role == 'assistant' %}
    {{- '<|assistant|>\n<think>' + (m.reasoning_content or '' if loop.index0 > asked.last else '') + '</think>' }}
    {{- '\n' + m.content if m.content }}
    {%- for call in m.tool_calls or [] %}
      {{- '\n<tool_call>' + call.function.name + '\n' }}
      {%- for name, value in call.function.arguments.items() %}
        {{- '<arg_key>' + name + '</arg_key>\n<arg_value>' + (value if value is string else value | tojson) + '</arg_value>\n' }}
      {%- endfor %}
      {{- '</tool_call>' }}
    {%- endfor %}
  {%- else %}{{- '<|' + m.role + '|>\n' + m.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{% endif %}
"""
)

KIMI = r"""
{%- if tools %}{{- '<|im_system|>tool_declare<|im_middle|>' + (tools | tojson) + '<|im_end|>' }}{% endif %}
{%- for m in messages %}
  {%- if m.role == 'assistant' %}
    {{- '<|im_assistant|>assistant<|im_middle|>' + (m.content or '') }}
    {%- if m.tool_calls %}
      {{- '<|tool_calls_section_begin|>' }}
      {%- for call in m.tool_calls %}
        {{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' + (call.function.arguments | tojson) + '<|tool_call_end|>' }}
      {%- endfor %}
      {{- '<|tool_calls_section_end|>' }}
    {%- endif %}
  {%- elif m.role == 'tool' %}{{- '<|im_system|>tool<|im_middle|>## Return of ' + m.tool_call_id + '\n' + m.content }}
  {%- else %}{{- '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' + m.content }}{% endif %}
  {{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}
"""


def chatml(reasoning: str = "", prefill: str = "") -> str:
    return LAST_ASKED + CHATML.replace("REASONING", reasoning).replace("PREFILL", prefill)


def _native_id(name: str, index: int) -> str:
    return f"functions.{name}:{index}"


@dataclass(frozen=True)
class Family:
    """What makes a folder a model of its family."""

    tokens: str
    """Its special tokens, separated by white space; the first ends a turn."""
    template: str
    parser: str
    packaged: str | None = None
    """The renderer of the package that is made for it."""
    system: bool = True
    parallel: bool = True
    """Whether a turn may have several calls."""
    talks_and_calls: bool = False
    """Whether a turn may have text beside its calls."""
    reasons: bool = False
    moves_history: bool = False
    """Whether a user's message rewrites what came before, even without reasoning."""
    id: Callable[[str, int], str] | None = None
    """The id that the model gives a call."""
    end_of_calls: str | None = None
    """The token that the model samples after calls, where its templates leave that to the next message."""


FAMILIES = {
    "hermes": Family("<|im_end|> <|im_start|>", chatml(), "hermes", talks_and_calls=True),
    "textual": Family(
        "<|im_end|> <|im_start|>",
        chatml().replace("(call.function.arguments | tojson)", "call.function.arguments"),
        "hermes",
        talks_and_calls=True,
    ),
    "qwen3": Family(
        "<|im_end|> <|im_start|> <|endoftext|> <tool_call> </tool_call> <tool_response> </tool_response> "
        "<think> </think>",
        chatml(WITHIN_CYCLE),
        "qwen",
        packaged="qwen3",
        talks_and_calls=True,
        reasons=True,
    ),
    "llama3": Family(
        "<|eot_id|> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|end_of_text|> <|eom_id|>",
        LLAMA,
        "llama3_json",
        packaged="llama-3",
        parallel=False,
    ),
    "mistral": Family(
        "</s> <s> [INST] [/INST] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS]",
        MISTRAL,
        "mistral",
        system=False,
        moves_history=True,
    ),
    "deepseek": Family(
        "<｜end▁of▁sentence｜> <｜begin▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁calls▁begin｜> "
        "<｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> <｜tool▁outputs▁begin｜> "
        "<｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜>",
        DEEPSEEK,
        "deepseek_v3",
        packaged="deepseek-v3",
    ),
    "glm": Family(
        "<|user|> <|endoftext|> [gMASK] <sop> <|system|> <|assistant|> <|observation|> <think> </think> <tool_call> "
        "</tool_call> <arg_key> </arg_key> <arg_value> </arg_value>",
        GLM,
        "glm45",
        packaged="glm-4.5",
        talks_and_calls=False,
        reasons=True,
        end_of_calls="<|observation|>",
    ),
    "kimi": Family(
        "<|im_end|> <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|> <|tool_calls_section_begin|> "
        "<|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|> <|tool_call_end|>",
        KIMI,
        "kimi_k2",
        packaged="kimi-k2",
        talks_and_calls=True,
        id=_native_id,
    ),
}


def make_model(folder: Path, family: Family) -> Path:
    """A folder with the family's tokenizer, trained here, its template and its configuration."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokens = family.tokens.split()
    tokenizer.add_tokens(
        [AddedToken(token, special=not ORDINARY.search(token), normalized="｜" in token) for token in tokens]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = [tokens[0], *([family.end_of_calls] if family.end_of_calls else [])]
    described = {
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokens[0]},
        "generation_config.json": {"eos_token_id": [tokenizer.token_to_id(end) for end in ends]},
    }
    for name, content in described.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text(family.template.strip("\n"))
    return folder
