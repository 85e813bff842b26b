"""What renderers do where a rollout doesn't go as planned, and how one is found for a model."""

from pathlib import Path

import pytest

from clotho.embedded.model.tokenizer import Tokenizer as PolicyTokenizer
from clotho.errors import InvalidInput
from clotho.models.backend import PriorTurn, SampledTokens
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.rendering.renderer import Renderer
from clotho.models.rendering.resolve import open_renderer
from tests.unit.rendering.conftest import OpenFamily
from tests.unit.rendering.families import FAMILIES, POLICY, R1, Family, make_model
from tests.unit.rendering.rollouts import TOOLS, encode

ASKED = (ChatMessage(role="user", content="Read notes.txt"),)
MORE = ChatMessage(role="user", content="And then?")
CALL = ToolCall(id="call00000", function=FunctionCall(name="terminal", arguments='{"command": "ls"}'))
RESULT = ChatMessage(role="tool", content="notes.txt", tool_call_id=CALL.id, name="terminal")
R1_FAMILY = Family(FAMILIES["deepseek"].tokens + " <think> </think>", R1, "deepseek_v3")


def sampled(prompt_ids: tuple[int, ...], ids: tuple[int, ...]) -> SampledTokens:
    return SampledTokens(prompt_ids=prompt_ids, ids=ids, logprobs=(-1.0,) * len(ids), logprobs_mode="raw")


def parsed(renderer: Renderer, prompt: tuple[int, ...], ids: tuple[int, ...]) -> ChatMessage:
    return renderer.parse(ids, TOOLS, prompt_ids=prompt, turn_key="run/g000000/r0/turn/0000").message


@pytest.fixture(scope="module")
def r1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("r1") / "model", R1_FAMILY)


@pytest.mark.parametrize("packaged", [False, True])
def test_a_turn_cut_off_is_closed_with_tokens_that_nobody_sampled(
    open_family: OpenFamily, packaged: bool
) -> None:
    renderer = open_family("llama3", packaged=packaged)
    prompt, cut = renderer.render(ASKED, TOOLS), encode(renderer, "I read the")
    bridged = renderer.bridge(prompt, cut, [MORE], TOOLS)
    message = parsed(renderer, prompt, cut)
    assert message.content == "I read the"
    assert bridged == renderer.render((*ASKED, message, MORE), TOOLS)
    assert bridged[: len(prompt) + len(cut)] == prompt + cut


def test_a_turn_cut_off_while_thinking_is_rendered_afresh(open_family: OpenFamily) -> None:
    renderer = open_family("qwen3")
    prompt, cut = renderer.render(ASKED, TOOLS), encode(renderer, "<think>\nI read")
    assert renderer.bridge(prompt, cut, [MORE], TOOLS) is None
    message = parsed(renderer, prompt, cut)
    assert (message.content, message.reasoning_content) == (None, "I read")


def test_a_turn_ended_by_another_token_than_the_templates_is_rendered_afresh(open_family: OpenFamily) -> None:
    renderer = open_family("glm")
    prompt = renderer.render(ASKED, TOOLS)
    ended = encode(renderer, "\n<think></think>\nDone<|observation|>")
    assert renderer.bridge(prompt, ended, [MORE], TOOLS) is None
    assert renderer.bridge(prompt, (*ended[:-1], encode(renderer, "<|user|>")[0]), [MORE], TOOLS) is not None


def test_reasoning_stays_within_a_tool_cycle_and_goes_with_the_next_question(open_family: OpenFamily) -> None:
    thought = (
        '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "terminal", "arguments": {}}\n</tool_call><|im_end|>'
    )
    template, kept = open_family("qwen3"), open_family("qwen3", thinking_mode=True)
    prompt, ids = template.render(ASKED, TOOLS), encode(template, thought)
    for packaged in (False, True):
        renderer = open_family("qwen3", packaged=packaged)
        given = renderer.render(ASKED, TOOLS)
        assert renderer.bridge(given, ids, [RESULT], TOOLS) is not None
        assert renderer.bridge(given, ids, [RESULT, MORE], TOOLS) is None
    extended = kept.bridge(prompt, ids, [RESULT, MORE], TOOLS)
    assert extended is not None
    assert extended[: len(prompt) + len(ids)] == prompt + ids


def test_a_template_that_drops_all_reasoning_starts_anew_every_turn(r1: Path) -> None:
    renderer = open_renderer(str(r1), tool_call_parser="deepseek_v3")
    prompt, ids = renderer.render(ASKED), encode(renderer, "hm\n</think>\n\nDone<｜end▁of▁sentence｜>")
    message = parsed(renderer, prompt, ids)
    assert (message.content, message.reasoning_content) == ("Done", "hm")
    assert renderer.bridge(prompt, ids, [MORE]) is None
    kept = open_renderer(str(r1), tool_call_parser="deepseek_v3", thinking_mode=True)
    assert kept.bridge(prompt, ids, [MORE]) == prompt + ids + encode(
        kept, "<｜User｜>And then?<｜Assistant｜><think>\n"
    )


def test_reasoning_that_a_template_knows_nothing_of_is_shown_in_thinking_mode_only(
    open_family: OpenFamily,
) -> None:
    thought = "<think>\nhm\n</think>\n\nDone<|im_end|>"
    for thinking_mode in (False, True):
        renderer = open_family("hermes", thinking_mode=thinking_mode)
        prompt, ids = renderer.render(ASKED, TOOLS), encode(renderer, thought)
        history = (*ASKED, parsed(renderer, prompt, ids), MORE)
        assert ("<think>\nhm\n</think>\n\nDone" in renderer.decode(renderer.render(history))) is thinking_mode
        bridged = renderer.bridge(prompt, ids, [MORE], TOOLS)
        assert bridged == (renderer.render(history, TOOLS) if thinking_mode else None)


def test_an_edited_or_compacted_history_is_rendered_afresh(open_family: OpenFamily) -> None:
    renderer = open_family("hermes")
    prompt, ids = renderer.render(ASKED, TOOLS), encode(renderer, "Done.  <|im_end|>")
    message = parsed(renderer, prompt, ids)
    prior = PriorTurn(messages=(*ASKED, message), tokens=sampled(prompt, ids))
    kept = renderer.next_prompt((*ASKED, message, MORE), TOOLS, prior)
    assert kept[: len(prompt) + len(ids)] == prompt + ids
    edited = (*ASKED, message.model_copy(update={"content": "Not done."}), MORE)
    assert renderer.next_prompt(edited, TOOLS, prior) == renderer.render(edited, TOOLS)
    compacted = (ChatMessage(role="user", content="In short: it was read."),)
    assert renderer.next_prompt(compacted, TOOLS, prior) == renderer.render(compacted, TOOLS)


@pytest.mark.parametrize("packaged", [False, True])
@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"a": ' + "1" * 5_000 + "}", '{"a": "\\ud83d"}', "{", "null", '"text"']
)
def test_whatever_a_model_writes_is_read_and_shown(
    open_family: OpenFamily, packaged: bool, arguments: str
) -> None:
    renderer = open_family("qwen3", packaged=packaged)
    prompt = renderer.render(ASKED, TOOLS)
    written = f'<tool_call>\n{{"name": "terminal", "arguments": {arguments}}}\n</tool_call><|im_end|>'
    message = parsed(renderer, prompt, encode(renderer, written))
    assert message.tool_calls or message.content
    assert ChatMessage.model_validate_json(message.model_dump_json()) == message
    assert renderer.render((*ASKED, message), TOOLS)


def test_ids_of_calls_come_from_the_turns_key(open_family: OpenFamily) -> None:
    for packaged in (False, True):
        renderer = open_family("qwen3", packaged=packaged)
        prompt = renderer.render(ASKED, TOOLS)
        call = '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>'
        ids = encode(renderer, f"{call}\n{call}<|im_end|>")
        first, second = parsed(renderer, prompt, ids).tool_calls
        assert (first, second) == parsed(renderer, prompt, ids).tool_calls
        assert first.id != second.id
        other = renderer.parse(ids, TOOLS, prompt_ids=prompt, turn_key="other").message
        assert other.tool_calls[0].id != first.id


def test_calls_are_text_where_no_tools_are_offered(open_family: OpenFamily) -> None:
    for packaged in (False, True):
        renderer = open_family("qwen3", packaged=packaged)
        prompt = renderer.render(ASKED)
        ids = encode(renderer, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>')
        message = renderer.parse(ids, (), prompt_ids=prompt, turn_key="key").message
        assert not message.tool_calls
        assert '"name": "f"' in (message.content or "")


def test_the_embedded_policys_own_template_is_what_is_rendered_and_extended() -> None:
    renderer = open_renderer(str(POLICY), tool_call_parser="hermes")
    theirs = PolicyTokenizer(POLICY)
    text = theirs.render([m.wire() for m in ASKED], TOOLS)
    assert list(renderer.render(ASKED, TOOLS)) == theirs.encode(text)
    assert renderer.stop_token_ids == (2,)
    prompt = renderer.render(ASKED, TOOLS)
    call = '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
    ids = encode(renderer, call)
    message = parsed(renderer, prompt, ids)
    result = RESULT.model_copy(update={"tool_call_id": message.tool_calls[0].id})
    assert renderer.bridge(prompt, ids, [result], TOOLS) == renderer.render((*ASKED, message, result), TOOLS)
    assert "tool calls read by qwen" in open_renderer(str(POLICY)).description


def test_a_family_is_known_by_its_folder(models: Path, open_family: OpenFamily) -> None:
    assert "tool calls read by hermes" in open_renderer(str(models / "hermes")).description
    assert "renderer qwen3 of renderers" in open_family("qwen3", packaged=True).description


def test_a_model_without_a_chat_template_is_refused(models: Path, tmp_path: Path) -> None:
    bare = make_model(tmp_path / "bare", FAMILIES["hermes"])
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(InvalidInput, match="has no chat template"):
        open_renderer(str(bare))


def test_wrong_names_list_the_right_ones(models: Path) -> None:
    folder = str(models / "hermes")
    with pytest.raises(InvalidInput, match=r"'qwen' is unknown; use one of template, .*kimi-k2.*qwen3"):
        open_renderer(folder, renderer="qwen")
    with pytest.raises(InvalidInput, match=r"'hermes2' is unknown; use one of .*hermes.*qwen3_coder"):
        open_renderer(folder, tool_call_parser="hermes2")
    with pytest.raises(InvalidInput, match="doesn't fit the tokenizer"):
        open_renderer(folder, renderer="llama-3")
    with pytest.raises(InvalidInput, match="no tokenizer can be loaded"):
        open_renderer("/nowhere/to/be/found")


def test_tools_need_a_way_to_read_calls(models: Path, tmp_path: Path) -> None:
    unknown = open_renderer(str(make_model(tmp_path / "finetune", FAMILIES["hermes"])))
    assert unknown.render(ASKED)
    with pytest.raises(InvalidInput, match=r"give --tool-call-parser, one of .*hermes.*, or the --renderer"):
        unknown.render(ASKED, TOOLS)


@pytest.mark.parametrize(
    ("name", "renderer"), [("gpt-oss-20b", "gpt-oss"), ("MiniMax-M2", "minimax-m2"), ("gemma4-ft", "gemma4")]
)
def test_a_model_that_only_a_renderer_reads_is_told_which(tmp_path: Path, name: str, renderer: str) -> None:
    folder = open_renderer(str(make_model(tmp_path / name, FAMILIES["hermes"])))
    with pytest.raises(InvalidInput, match=f"give --renderer {renderer}, which reads its own format"):
        folder.render(ASKED, TOOLS)


def test_what_a_format_cant_show_is_refused(open_family: OpenFamily) -> None:
    twice = ChatMessage(role="assistant", tool_calls=(CALL, CALL))
    picture = ChatMessage(role="user", content=({"type": "image_url", "image_url": {"url": "http://x"}},))
    for packaged in (False, True):
        renderer = open_family("llama3", packaged=packaged)
        with pytest.raises(InvalidInput, match="refuses the messages"):
            renderer.render((*ASKED, twice), TOOLS)
        with pytest.raises(InvalidInput, match="aren't text"):
            renderer.render((picture,), TOOLS)
