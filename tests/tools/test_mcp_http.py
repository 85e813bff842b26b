"""Tools of MCP servers by URL: a server of the `mcp` package, and services that fail in each way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clotho.errors import ServiceRejected, ServiceUnavailable
from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.settings import McpServer
from clotho.plugins.mcp.tool import tools_of
from tests.support import PATIENCE_SECONDS
from tests.tools.test_mcp import UNKNOWN, Notes, result

VARIABLES = {"NOTES_TOKEN": "s3cret-token"}
Answer = Callable[[], Response]


class Guarded:
    """An application that asks for a token, and answers in another's place as long as that is set."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.instead: Answer | None = None
        self.calls_instead: Answer | None = None
        """For calls of tools alone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = self.instead
            if dict(scope["headers"]).get(b"authorization") != b"Bearer s3cret-token":
                answer = lambda: Response(status_code=401)  # noqa: E731
            if answer is not None:
                await answer()(scope, receive, send)
                return
            if self.calls_instead is not None and scope["method"] == "POST":
                body = await Request(scope, receive).body()
                if b'"tools/call"' in body:
                    await self.calls_instead()(scope, receive, send)
                    return
                receive = _given_back(body, receive)
        await self._app(scope, receive, send)


def _given_back(body: bytes, receive: Receive) -> Receive:
    """`receive`, with a body before it that was read from it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return parts.pop() if parts else await receive()

    return received


def notes_server() -> MCPServer:
    server = MCPServer("notes")
    notes: list[str] = []

    @server.tool()
    def add_note(text: str) -> str:
        """Keep a note, and tell how many there are."""
        notes.append(text)
        return f"{len(notes)} notes"

    @server.tool()
    async def misbehave(text: str) -> str:
        """Do what the text says."""
        if text == "hang":
            await asyncio.Event().wait()
        if text == "flood":
            return "x" * 40_000_000
        raise ValueError("no such thing")

    return server


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await task


@pytest.fixture
async def servers() -> AsyncIterator[McpServers]:
    made = McpServers(VARIABLES.get)
    yield made
    await made.close()


@pytest.fixture(params=[False, True], ids=["events", "json"])
async def guarded(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Guarded, str]]:
    app = Guarded(notes_server().streamable_http_app(json_response=request.param))
    async with served(app) as url:
        yield app, f"{url}/mcp"


def settings(url: str, **more: Any) -> McpServer:
    return McpServer(url=url, secrets={"Authorization": "NOTES_TOKEN"}, **more)


@pytest.fixture
async def notes(guarded: tuple[Guarded, str], servers: McpServers, tmp_path: Path) -> Notes:
    return await Notes(tmp_path, servers, settings(guarded[1], seconds=PATIENCE_SECONDS)).offer()


async def test_calls_of_a_service(notes: Notes) -> None:
    assert list(notes.tools) == ["mcp_notes_add_note", "mcp_notes_misbehave"]
    answers = [result(await notes.call("mcp_notes_add_note", text)) for text in ("a", "b")]
    assert answers == ["1 notes", "2 notes"]


async def test_a_tool_that_raises_is_told(notes: Notes) -> None:
    done = await notes.call("mcp_notes_misbehave", "raise")
    assert done.failure is not None and "Error executing tool misbehave" in done.content


async def test_an_answer_of_40_mb_is_refused_and_the_next_call_made(notes: Notes) -> None:
    done = await notes.call("mcp_notes_misbehave", "flood")
    assert done.failure is not None and ("bytes" in done.content or UNKNOWN in done.content), done.content
    assert len(done.content) < 3_000
    assert result(await notes.call("mcp_notes_add_note", "after")) == "1 notes"


async def test_a_call_that_hangs_is_given_up(
    guarded: tuple[Guarded, str], servers: McpServers, tmp_path: Path
) -> None:
    notes = await Notes(tmp_path, servers, settings(guarded[1], seconds=0.5)).offer()
    assert f"within 0.5 s. {UNKNOWN}" in (await notes.call("mcp_notes_misbehave", "hang")).content


async def test_a_failing_gateway_leaves_the_outcome_unknown(
    guarded: tuple[Guarded, str], notes: Notes
) -> None:
    await notes.call("mcp_notes_add_note", "a")
    guarded[0].instead = lambda: Response(status_code=502)
    assert f"it answered HTTP 502. {UNKNOWN}" in (await notes.call("mcp_notes_add_note", "b")).content
    guarded[0].instead = None
    assert result(await notes.call("mcp_notes_add_note", "c")) == "2 notes"


async def test_a_call_that_was_turned_away_is_made_by_a_later_attempt(
    guarded: tuple[Guarded, str], notes: Notes
) -> None:
    for _ in range(2):
        guarded[0].calls_instead = lambda: Response(status_code=429)
        with pytest.raises(ServiceUnavailable, match="it answered HTTP 429"):
            await notes.call("mcp_notes_add_note", "a", call="0-0")
    guarded[0].calls_instead = None
    assert result(await notes.call("mcp_notes_add_note", "a", call="0-0")) == "1 notes"
    again = await notes.call("mcp_notes_add_note", "a", call="0-0")
    assert "wasn't made again" in again.content


async def test_a_call_that_never_connected_is_made_by_a_later_attempt(
    servers: McpServers, tmp_path: Path
) -> None:
    app = Guarded(notes_server().streamable_http_app())
    async with served(app) as url:
        notes = await Notes(tmp_path, servers, settings(f"{url}/mcp")).offer()
        await notes.call("mcp_notes_add_note", "a")
    with pytest.raises(ServiceUnavailable, match="can't be reached"):
        await notes.call("mcp_notes_add_note", "b", call="0-0")
    async with served(Guarded(notes_server().streamable_http_app())) as url:
        notes.server = settings(f"{url}/mcp")
        assert result(await notes.call("mcp_notes_add_note", "b", call="0-0")) == "1 notes"
        await servers.close()


async def test_an_outage_at_a_call_that_may_be_repeated_is_no_answer(
    guarded: tuple[Guarded, str], servers: McpServers, tmp_path: Path
) -> None:
    server = settings(guarded[1], idempotent=("add_note",))
    notes = await Notes(tmp_path, servers, server).offer()
    guarded[0].calls_instead = lambda: Response(status_code=503)
    with pytest.raises(ServiceUnavailable, match="it answered HTTP 503"):
        await notes.call("mcp_notes_add_note", "a")
    guarded[0].calls_instead = None
    assert result(await notes.call("mcp_notes_add_note", "a")) == "1 notes"


def events(*parts: bytes, breaks: bool) -> Response:
    """A stream of events that ends before its answer: as it should, or by a broken connection."""

    async def sent() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        if breaks:
            raise ConnectionResetError

    return StreamingResponse(sent(), media_type="text/event-stream")


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("parts", [(), (b": working\n\n", b'data: {"jsonrpc": "2.0", "id')])
async def test_a_stream_that_breaks_off_is_an_outage(
    guarded: tuple[Guarded, str], servers: McpServers, tmp_path: Path, parts: tuple[bytes, ...], breaks: bool
) -> None:
    notes = await Notes(tmp_path, servers, settings(guarded[1], idempotent=("add_note",))).offer()
    broken: list[Response] = []

    def once() -> Response:
        broken.append(events(*parts, breaks=breaks))
        guarded[0].calls_instead = None
        return broken[-1]

    def always() -> Response:
        return events(*parts, breaks=breaks)

    guarded[0].calls_instead = once
    assert result(await notes.call("mcp_notes_add_note", "a")) == "1 notes"
    guarded[0].calls_instead = always
    with pytest.raises(ServiceUnavailable, match="its answer broke off"):
        await notes.call("mcp_notes_add_note", "b")
    assert f"its answer broke off. {UNKNOWN}" in (await notes.call("mcp_notes_misbehave", "raise")).content


@pytest.mark.parametrize("tool", ["add_note", "misbehave"])
async def test_a_service_says_when_it_may_be_called_again(
    guarded: tuple[Guarded, str], servers: McpServers, tmp_path: Path, tool: str
) -> None:
    notes = await Notes(tmp_path, servers, settings(guarded[1], idempotent=("add_note",))).offer()
    asked: list[Response] = []

    def later() -> Response:
        asked.append(Response(status_code=429, headers={"retry-after": "17"}))
        return asked[-1]

    guarded[0].calls_instead = later
    with pytest.raises(ServiceUnavailable) as raised:
        await notes.call(f"mcp_notes_{tool}", "raise")
    assert raised.value.retry_after == timedelta(seconds=17) and len(asked) == 1
    guarded[0].instead = later
    with pytest.raises(ServiceUnavailable) as raised:
        await tools_of("notes", settings(guarded[1]), servers)
    assert raised.value.retry_after == timedelta(seconds=17)


async def test_a_service_that_was_started_again_is_called_once(servers: McpServers, tmp_path: Path) -> None:
    """It knows no session of its predecessor's: the call is refused, and made in a new one."""
    app = Guarded(notes_server().streamable_http_app())
    async with served(app) as url:
        notes = await Notes(tmp_path, servers, settings(f"{url}/mcp")).offer()
        assert result(await notes.call("mcp_notes_add_note", "a")) == "1 notes"
        another = notes_server().streamable_http_app()
        async with another.router.lifespan_context(another):
            app._app = another
            assert result(await notes.call("mcp_notes_add_note", "b")) == "1 notes"
            await servers.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [(403, ServiceRejected), (404, ServiceUnavailable), (429, ServiceUnavailable), (503, ServiceUnavailable)],
)
async def test_a_service_that_refuses_at_the_start(
    servers: McpServers, status: int, error: type[Exception]
) -> None:
    async def answer(request: Request) -> Response:
        return Response(status_code=status)

    async with served(Starlette(routes=[Route("/mcp", answer, methods=["POST", "GET"])])) as url:
        with pytest.raises(error, match=f"HTTP {status}"):
            await tools_of("notes", settings(f"{url}/mcp"), servers)


async def test_a_page_that_isnt_a_server_is_rejected(servers: McpServers) -> None:
    async def answer(request: Request) -> Response:
        return Response("<html>", media_type="text/html")

    async with served(Starlette(routes=[Route("/mcp", answer, methods=["POST", "GET"])])) as url:
        with pytest.raises(ServiceRejected, match="doesn't speak MCP"):
            await tools_of("notes", settings(f"{url}/mcp"), servers)


async def test_a_service_that_cant_be_reached_is_an_outage(servers: McpServers) -> None:
    async with served(Starlette()) as url:
        pass
    with pytest.raises(ServiceUnavailable, match="can't be reached: ConnectError"):
        await tools_of("notes", settings(f"{url}/mcp"), servers)


async def test_a_wrong_token_is_rejected_and_not_told(guarded: tuple[Guarded, str]) -> None:
    servers = McpServers({"NOTES_TOKEN": "another-token"}.get)
    with pytest.raises(ServiceRejected, match="HTTP 401") as raised:
        await tools_of("notes", settings(guarded[1]), servers)
    assert "another-token" not in str(raised.value)
