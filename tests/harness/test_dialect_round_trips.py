"""Transcripts that go out to a harness as answers and come back in its next request."""

import json

from hypothesis import given
from hypothesis import strategies as st

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.plugins.harness.dialects.canonical import Answer, respelt
from clotho.plugins.harness.dialects.dialect import Dialect
from tests.harness.dialect_requests import Json
from tests.harness.test_dialects import CHAT, MESSAGES, RESPONSES, data_of

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, values, max_size=3).map(lambda value: json.dumps(value, ensure_ascii=False))


def transcripts(arguments: st.SearchStrategy[str]) -> st.SearchStrategy[list[ChatMessage]]:
    """Transcripts of turns that aren't empty, each followed by the results of its calls and a question."""
    calls = st.builds(ToolCall, id=texts, function=st.builds(FunctionCall, name=texts, arguments=arguments))
    turn = st.builds(
        ChatMessage,
        role=st.just("assistant"),
        content=st.none() | texts,
        reasoning_content=st.none() | texts,
        tool_calls=st.lists(calls, max_size=3).map(tuple),
    ).filter(lambda message: bool(message.content or message.reasoning_content or message.tool_calls))

    def answered(message: ChatMessage) -> list[ChatMessage]:
        results = [
            ChatMessage(role="tool", content="ok", tool_call_id=each.id) for each in message.tool_calls
        ]
        return [message, *(results or [ChatMessage(role="user", content="And?")])]

    question = ChatMessage(role="user", content="Go")
    return st.lists(turn, min_size=1, max_size=4).map(
        lambda turns: [question, *(message for turn in turns for message in answered(turn))]
    )


def written(dialect: Dialect, message: ChatMessage, streamed: bool) -> Json:
    """The answer's body, or what a client assembles of its events."""
    if not streamed or dialect is CHAT:
        return dict(json.loads(dialect.answer(Answer(message=message), "k1", "policy")))
    events = data_of(b"".join(dialect.events(Answer(message=message), "k1", "policy")))
    if dialect is RESPONSES:
        return {"output": [each["item"] for each in events if each["type"] == "response.output_item.done"]}
    content: list[Json] = []
    for event in events:
        if event["type"] == "content_block_start":
            content.append(event["content_block"])
        elif event["type"] == "content_block_delta":
            (delta,) = ({k: v for k, v in event["delta"].items() if k != "type"},)
            if "partial_json" in delta:
                delta = {"input": json.loads(delta["partial_json"])}
            content[-1] |= delta
    return {"content": content}


def sent_back(dialect: Dialect, messages: list[ChatMessage], streamed: bool) -> bytes:
    """The next request of a harness: Codex leaves ids and the text of reasoning out."""
    history: list[Json] = []
    for message in messages:
        if message.role != "assistant":
            result = {"tool_call_id": message.tool_call_id} if message.tool_call_id else {}
            plain: Json = {"role": message.role, "content": message.content, **result}
            if dialect is RESPONSES and result:
                plain = {"type": "function_call_output", "call_id": message.tool_call_id, "output": "ok"}
            elif dialect is MESSAGES and result:
                block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": "ok"}
                plain = {"role": "user", "content": [block]}
            history.append(plain)
        elif dialect is CHAT:
            history.append(written(dialect, message, streamed)["choices"][0]["message"])
        elif dialect is RESPONSES:
            for item in written(dialect, message, streamed)["output"]:
                dropped = {"id", "status"} | ({"content"} if item["type"] == "reasoning" else set())
                history.append({name: value for name, value in item.items() if name not in dropped})
        else:
            content = written(dialect, message, streamed)["content"]
            history.append({"role": "assistant", "content": content})
    name = "input" if dialect is RESPONSES else "messages"
    return json.dumps({"model": "m", name: history}).encode()


@given(transcripts(texts | objects), st.booleans())
def test_transcripts_survive_dialects_that_keep_arguments(
    messages: list[ChatMessage], streamed: bool
) -> None:
    for dialect in (CHAT, RESPONSES):
        assert list(dialect.parse(sent_back(dialect, messages, streamed)).messages) == messages


@given(transcripts(objects), st.booleans())
def test_transcripts_survive_the_messages_api(messages: list[ChatMessage], streamed: bool) -> None:
    assert list(MESSAGES.parse(sent_back(MESSAGES, messages, streamed)).messages) == messages


@given(transcripts(texts | objects), st.booleans())
def test_respelt_transcripts_survive_every_dialect(messages: list[ChatMessage], streamed: bool) -> None:
    for dialect in (CHAT, RESPONSES, MESSAGES):
        back = dialect.parse(sent_back(dialect, messages, streamed)).messages
        assert [respelt(message) for message in back] == [respelt(message) for message in messages]


def test_arguments_that_javascript_writes_anew_are_respelt_alike() -> None:
    def message(arguments: str, content: str | None) -> ChatMessage:
        call = ToolCall(id="c", function=FunctionCall(name="f", arguments=arguments))
        return ChatMessage(role="assistant", content=content, tool_calls=(call,))

    sampled = respelt(message('{"b": "\\u00e9", "a": [1.0, 1.50], "2": -0.0}', ""))
    assert sampled == respelt(message('{"2":0,"b":"é","a":[1,1.5]}', None))
    assert sampled != respelt(message('{"2":0,"b":"e","a":[1,1.5]}', None))
