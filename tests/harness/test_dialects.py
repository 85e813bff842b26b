"""Answers in each wire dialect, as the APIs' own types and clients read them."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.plugins.harness.dialects import BY_PATH
from clotho.plugins.harness.dialects.canonical import Answer
from clotho.plugins.harness.dialects.dialect import Dialect, ErrorKind

Json = dict[str, Any]

CHAT, RESPONSES, MESSAGES = (BY_PATH[path] for path in ("chat/completions", "responses", "messages"))
DIALECTS = pytest.mark.parametrize("dialect", BY_PATH.values(), ids=BY_PATH.keys())
BODIES: Mapping[str, TypeAdapter[Any]] = {
    "chat/completions": TypeAdapter(ChatCompletion),
    "responses": TypeAdapter(Response),
    "messages": TypeAdapter(Message),
}
EVENTS: Mapping[str, TypeAdapter[Any]] = {
    "chat/completions": TypeAdapter(ChatCompletionChunk),
    "responses": TypeAdapter(ResponseStreamEvent),
    "messages": TypeAdapter(RawMessageStreamEvent),
}
LINE_SEPARATOR = "\u2028"


def call(name: str, arguments: str, id: str = "call_1") -> ToolCall:
    return ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))


def answer(
    content: str | None = None,
    reasoning: str | None = None,
    *calls: ToolCall,
    finish_reason: str = "stop",
) -> Answer:
    message = ChatMessage(role="assistant", content=content, reasoning_content=reasoning, tool_calls=calls)
    return Answer(message=message, finish_reason=finish_reason, prompt_tokens=7, completion_tokens=5)


LISTING = call("bash", '{"command": "ls"}')
ANSWERS = {
    "text": answer(f"Done:{LINE_SEPARATOR}a.txt 🦀"),
    "nothing": answer(),
    "reasoning": answer("Hi", "The user greets."),
    "cut": answer("Once upon", finish_reason="length"),
    "filtered": answer("I", finish_reason="content_filter"),
    "call": answer(None, None, LISTING, finish_reason="tool_calls"),
    "all": answer("Two calls.", "Both files.", LISTING, call("read", '{"path": "a"}', "call_2")),
    "not JSON": answer(None, None, call("bash", "ls -l")),
}
EACH_ANSWER = pytest.mark.parametrize("given", ANSWERS.values(), ids=ANSWERS.keys())


def data_of(stream: bytes) -> list[Json]:
    """The values of a stream's events, which every client may split at line breaks of any kind."""
    lines = [line for line in stream.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]


def unknown_fields(value: object) -> set[str]:
    """Fields that the API's types don't have, at any depth."""
    if isinstance(value, list):
        return {name for each in value for name in unknown_fields(each)}
    if not isinstance(value, BaseModel):
        return set()
    inner = {name for each in dict(value).values() for name in unknown_fields(each)}
    return inner | set(value.model_extra or {})


@EACH_ANSWER
@DIALECTS
def test_bodies_and_events_are_of_the_apis_types(dialect: Dialect, given: Answer) -> None:
    body = BODIES[dialect.path].validate_json(dialect.answer(given, "k1", "policy"))
    events = data_of(b"".join(dialect.events(given, "k1", "policy")))
    typed = [EVENTS[dialect.path].validate_python(event) for event in events]
    assert unknown_fields([body, *typed]) <= {"reasoning_content"}
    assert [each.sequence_number for each in typed if hasattr(each, "sequence_number")] == (
        list(range(len(typed))) if dialect is RESPONSES else []
    )


@DIALECTS
def test_a_repeated_request_gets_the_same_bytes(dialect: Dialect) -> None:
    first, second = (b"".join(dialect.events(ANSWERS["all"], "k1", "policy")) for _ in range(2))
    assert first == second


def test_an_opened_stream_goes_on_where_the_opening_ended() -> None:
    whole = b"".join(RESPONSES.events(ANSWERS["all"], "k1", "policy"))
    rest = b"".join(RESPONSES.events(ANSWERS["all"], "k1", "policy", opened=True))
    assert RESPONSES.opening("k1", "policy") + rest == whole
    assert CHAT.opening("k1", "policy") == MESSAGES.opening("k1", "policy") == b""


class Server:
    """An HTTP server that answers every request with the same bytes."""

    def __init__(self) -> None:
        self.status, self.content_type, self.body = 200, "text/event-stream", b""
        self.requests = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.requests += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(server.status)
                self.send_header("Content-Type", server.content_type)
                self.send_header("Content-Length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def refuse(self, status: int, body: bytes) -> None:
        self.status, self.content_type, self.body = status, "application/json", body


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever)
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


@pytest.fixture
def gpt(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
        yield client


@pytest.fixture
def claude(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="k") as client:
        yield client


def waited(dialect: Dialect, given: Answer) -> bytes:
    """A stream whose client waited for two pings."""
    rest = b"".join(dialect.events(given, "k1", "policy", opened=True))
    return dialect.opening("k1", "policy") + dialect.ping * 2 + rest


@EACH_ANSWER
def test_the_openai_client_assembles_a_streamed_completion(
    server: Server, gpt: openai.OpenAI, given: Answer
) -> None:
    server.body = waited(CHAT, given)
    with gpt.chat.completions.stream(model="m", messages=[{"role": "user", "content": "Go"}]) as stream:
        stream.until_done()
        streamed = stream.current_completion_snapshot.model_dump(exclude_none=True)
    whole = ChatCompletion.model_validate_json(CHAT.answer(given, "k1", "policy"))
    for each in streamed["choices"][0]["message"].get("tool_calls", ()):
        del each["index"]
        each["function"].pop("parsed_arguments", None)
    assert streamed == whole.model_dump(exclude_none=True)


@EACH_ANSWER
def test_the_openai_client_assembles_a_streamed_response(
    server: Server, gpt: openai.OpenAI, given: Answer
) -> None:
    server.body = waited(RESPONSES, given)
    seen = []
    with gpt.responses.stream(model="m", input="Go") as stream:
        for event in stream:
            if event.type.endswith(("_text.delta", "arguments.delta")):
                seen.append(getattr(event, "delta", ""))
        streamed = stream.get_final_response()
    whole = Response.model_validate_json(RESPONSES.answer(given, "k1", "policy"))
    parsed: Any = {"output": {"__all__": {"parsed_arguments": True, "content": {"__all__": {"parsed"}}}}}
    assert streamed.model_dump(exclude=parsed) == whole.model_dump()
    message = given.message
    texts = [message.reasoning_content, message.content, *(c.function.arguments for c in message.tool_calls)]
    assert seen == [text for text in texts if text]


@EACH_ANSWER
def test_the_anthropic_client_assembles_a_streamed_message(
    server: Server, claude: anthropic.Anthropic, given: Answer
) -> None:
    server.body = waited(MESSAGES, given)
    with claude.messages.stream(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "Go"}]
    ) as stream:
        streamed = stream.get_final_message()
    whole = Message.model_validate_json(MESSAGES.answer(given, "k1", "policy"))
    assert streamed.model_dump(exclude={"parsed_output"}) == whole.model_dump()


@pytest.mark.parametrize(
    "kind", ["invalid_request", "context_overflow", "limit_reached", "not_found", "unauthorized"]
)
def test_the_clients_raise_an_error_and_do_not_ask_again(
    server: Server, gpt: openai.OpenAI, claude: anthropic.Anthropic, kind: ErrorKind
) -> None:
    for dialect in (CHAT, RESPONSES):
        status = dialect.statuses[kind]
        server.refuse(status, dialect.error(status, kind, "The rollout ended."))
        with pytest.raises(openai.APIStatusError, match="The rollout ended") as raised:
            gpt.post(f"/{dialect.path}", cast_to=object, body={})
        expected = {"context_overflow": "context_length_exceeded", "limit_reached": "insufficient_quota"}
        assert raised.value.status_code == status
        if kind in expected:
            assert raised.value.code == expected[kind]
    status = MESSAGES.statuses[kind]
    server.refuse(status, MESSAGES.error(status, kind, "The rollout ended."))
    with pytest.raises(anthropic.APIStatusError, match="The rollout ended") as failed:
        claude.messages.create(model="m", max_tokens=9, messages=[])
    assert failed.value.status_code == status
    assert ("prompt is too long" in str(failed.value)) == (kind == "context_overflow")
    assert server.requests == 3


def test_a_stream_that_has_begun_ends_with_an_error(
    server: Server, gpt: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    said = "40 turns are the limit."
    server.body = CHAT.ping + CHAT.error_event("limit_reached", said, "k1", "policy")
    with pytest.raises(openai.APIError, match=said):
        list(gpt.chat.completions.create(model="m", messages=[], stream=True))
    opening = RESPONSES.opening("k1", "policy") + RESPONSES.ping
    server.body = opening + RESPONSES.error_event("context_overflow", said, "k1", "policy")
    last = list(gpt.responses.create(model="m", input="Go", stream=True))[-1]
    assert last.type == "response.failed" and last.response.error is not None
    assert last.response.error.code == "context_length_exceeded"  # type: ignore[comparison-overlap]
    server.body = MESSAGES.ping + MESSAGES.error_event("limit_reached", said, "k1", "policy")
    with pytest.raises(anthropic.APIStatusError, match=said):
        list(claude.messages.create(model="m", max_tokens=9, messages=[], stream=True))


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Bearer job.0"}, {"authorization": "bearer job.0 "}, {"X-Api-Key": "job.0"}]
)
@DIALECTS
def test_the_key_is_in_either_header(dialect: Dialect, headers: Mapping[str, str]) -> None:
    assert dialect.key(headers) == "job.0"
    assert dialect.key({"Authorization": "Basic x", "x-api-key": ""}) is None


def test_calls_of_freeform_tools_are_written_as_texts() -> None:
    patched = answer(None, None, call("apply_patch", '{"input": "*** Begin"}'), call("apply_patch", "raw"))
    patched = patched.model_copy(update={"custom_tools": frozenset({"apply_patch"})})
    chunks = data_of(b"".join(CHAT.events(patched, "k1", "policy")))
    written = [each for chunk in chunks for each in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [each["custom"]["input"] for each in written] == ["*** Begin", "raw"]
    assert BODIES[CHAT.path].validate_json(CHAT.answer(patched, "k1", "policy"))
    events = data_of(b"".join(RESPONSES.events(patched, "k1", "policy")))
    typed = [EVENTS[RESPONSES.path].validate_python(event) for event in events]
    assert unknown_fields(typed) == set()
    assert [item.input for item in typed[-1].response.output] == ["*** Begin", "raw"]


def test_calls_of_tools_in_namespaces_are_told_apart() -> None:
    spawned = answer(None, None, call("agents__spawn", "{}"), call("mcp__x__y", "{}"))
    spawned = spawned.model_copy(update={"namespaces": {"agents__spawn": "agents"}})
    output = json.loads(RESPONSES.answer(spawned, "k1", "policy"))["output"]
    assert [(item.get("namespace"), item["name"]) for item in output] == [
        ("agents", "spawn"),
        (None, "mcp__x__y"),
    ]
    sent = {"model": "m", "input": [{"role": "user", "content": "Go"}, *output]}
    assert RESPONSES.parse(json.dumps(sent).encode()).messages[-1] == spawned.message
