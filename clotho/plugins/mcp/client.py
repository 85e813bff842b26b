"""A conversation with a server through the `mcp` package, in a task of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import JsonValue

from clotho.errors import HostUnavailable
from clotho.escaping import truncate_middle
from clotho.imported import BACKEND_OF_ANYIO, load
from clotho.plugins.mcp.answers import definition_of, shorten, text_of
from clotho.plugins.mcp.session import MOST_TOOLS, Answer, Definition, NoAnswer, NotStarted, Refused
from clotho.untrusted import values_in

if TYPE_CHECKING:
    from mcp import ClientSession

MOST_VALIDATED = 10_000
"""Values of structured content that are validated against a tool's own schema, on the event loop."""
MOST_ERROR_CHARS = 2_000

Result = TypeVar("Result")


class Transport(Protocol):
    """A way to a server."""

    def begin_call(self) -> None: ...

    @property
    def fault(self) -> tuple[str, bool]:
        """Why the conversation ended, and whether another attempt may go better."""

    def may_have_acted(self) -> bool:
        """Whether a call that it failed at may have had an effect."""

    def outage(self) -> bool:
        """Whether a call failed because the server can't be reached now, which is no doing of the call's."""

    @property
    def wait(self) -> timedelta | None:
        """The time that the server has asked for before another attempt."""

    def connect(self) -> AbstractAsyncContextManager[tuple[Any, Any]]: ...


class ClientConversation:
    """A conversation over `transport`; `start` makes it."""

    def __init__(self, transport: Transport) -> None:
        self.definitions: Sequence[Definition] = ()
        self._transport = transport
        self._session: ClientSession | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, transport: Transport, seconds: float) -> "ClientConversation":
        """Start the server and list its tools. Raises NotStarted, and HostUnavailable."""
        await load("mcp", BACKEND_OF_ANYIO)
        self = cls(transport)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # a task of its own: anyio's scopes are left by the task that entered them, and calls come from others
        self._task = asyncio.create_task(self._run(ready))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.close()
            raise NotStarted(f"it hasn't listed its tools within {seconds:g} s", passing=True) from None
        except asyncio.CancelledError:
            await self.close()
            raise
        if not self._task.done():
            return self
        error = self._task.exception()
        if (known := _known_error(error)) is not None:
            raise known
        said, passing = transport.fault
        raise NotStarted(said, passing, transport.wait) from error

    @property
    def ended(self) -> bool:
        return self._task is None or self._task.done()

    async def call(self, tool: str, arguments: dict[str, JsonValue], seconds: float) -> Answer:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        assert self._session is not None
        self._transport.begin_call()
        try:
            async with asyncio.timeout(seconds):
                result = await self._unless_ended(self._session.call_tool(tool, arguments))
        except TimeoutError:
            raise NoAnswer(f"it gave no answer within {seconds:g} s") from None
        except MCPError as error:
            # the package makes an MCPError of an HTTP failure, too, which is no answer of the server's
            if error.code == CONNECTION_CLOSED or self._transport.fault[1]:
                raise self._unanswered() from error
            raise Refused(truncate_middle(str(error), MOST_ERROR_CHARS)) from error
        except (RuntimeError, ValueError) as error:
            # an answer that breaks the protocol, or the tool's own schema
            raise Refused(
                f"its answer is invalid: {truncate_middle(str(error), MOST_ERROR_CHARS)}"
            ) from error
        return Answer(text_of(result), result.is_error)

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _unless_ended(self, work: Awaitable[Result]) -> Result:
        """The result of `work`; raises NoAnswer where the conversation ends before."""
        assert self._task is not None
        made = asyncio.ensure_future(work)
        try:
            await asyncio.wait({made, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if made.done():
                return made.result()
            raise self._unanswered()
        finally:
            made.cancel()
            await asyncio.wait({made})
            if not made.cancelled():
                # read, or asyncio logs it as never retrieved
                made.exception()

    def _unanswered(self) -> NoAnswer:
        transport = self._transport
        return NoAnswer(transport.fault[0], transport.may_have_acted(), transport.outage(), transport.wait)

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        async with self._transport.connect() as streams, _session(*streams) as session:
            await session.initialize()
            self.definitions = await _list_tools(session)
            self._session = session
            ready.set_result(None)
            with suppress(asyncio.CancelledError):
                await self._closing.wait()


def _known_error(error: BaseException | None) -> NotStarted | HostUnavailable | None:
    """Find a NotStarted or HostUnavailable in `error`, which task groups may have wrapped in a group."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := _known_error(each))), None)
    return error if isinstance(error, NotStarted | HostUnavailable) else None


@asynccontextmanager
async def _session(read: Any, write: Any) -> AsyncIterator["ClientSession"]:
    from mcp import ClientSession
    from mcp_types import CallToolResult, Implementation

    class Session(ClientSession):
        async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
            if values_in(result.structured_content) <= MOST_VALIDATED:
                await super().validate_tool_result(name, result)

    client = Implementation(name="clotho", version="1")
    async with Session(_Received(read), write, client_info=client) as session:
        yield session


class _Received:
    """A stream of messages whose results are shortened before the package validates them, on the event loop."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> "_Received":
        return self

    async def __anext__(self) -> Any:
        each = await anext(self._stream)
        if isinstance(result := getattr(getattr(each, "message", None), "result", None), dict):
            shorten(result)
        return each

    async def __aenter__(self) -> "_Received":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


async def _list_tools(session: "ClientSession") -> list[Definition]:
    from mcp_types import PaginatedRequestParams

    found: list[Definition] = []
    cursor: str | None = None
    while True:
        # pages without tools, but with a cursor, go on until the time of `start` is up
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found += map(definition_of, page.tools)
        cursor = page.next_cursor
        if len(found) > MOST_TOOLS:
            raise NotStarted(f"it has more than {MOST_TOOLS} tools", passing=False)
        if cursor is None:
            return found
