"""The way from hosts to a server, through which each can be slow, and which answers in a server's stead.

The kernels of many machines have no traffic shaper, so the delay is made here.
"""

import asyncio
import random
from contextlib import suppress

CHUNK = 65_536
METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
OVERLOADED = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 85\r\nConnection: close\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>     "
)


class Gate:
    """Passes connections on to the first of `targets`, ports of this machine, at which a server listens."""

    def __init__(self, address: str, *targets: int) -> None:
        self._address = address
        self._targets = list(targets)
        self.delays: dict[str, float] = {}
        """Address of a host -> seconds by which each of its packets is late, in each direction."""
        self.refused_share = 0.0
        """The share of HTTP requests that are answered with 503 here."""
        self.requests = 0
        self.refused = 0
        self._chance = random.Random(7)
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, self._address, 0, backlog=1024)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        return f"{self._address}:{self.port}"

    async def stop(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        peer: str = back.get_extra_info("peername")[0]
        try:
            far, forth = await self._open()
        except OSError:
            back.close()
            return
        ways = [
            asyncio.create_task(self._pass(near, forth, back, peer)),
            asyncio.create_task(self._pass(far, back, None, peer)),
        ]
        try:
            # The stream's own callback would log the cancellation by which `stop` ends this.
            with suppress(asyncio.CancelledError):
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            forth.close()
            back.close()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connections go to the servers in turn; one that is down is left out."""
        self._targets.append(self._targets.pop(0))
        for port in self._targets[:-1]:
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return await asyncio.open_connection("127.0.0.1", self._targets[-1])

    async def _pass(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        back: asyncio.StreamWriter | None,
        peer: str,
    ) -> None:
        """With `back`, `source` is the client."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def deliver() -> None:
            while True:
                due, chunk = await late.get()
                await asyncio.sleep(due - loop.time())
                if not chunk:
                    return
                sink.write(chunk)
                await sink.drain()

        delivering = asyncio.create_task(deliver())
        try:
            with suppress(OSError):
                while not delivering.done():
                    chunk = await source.read(CHUNK)
                    if back is not None and self._refuses(chunk):
                        back.write(OVERLOADED)
                        await back.drain()
                        break
                    late.put_nowait((loop.time() + self.delays.get(peer, 0.0), chunk))
                    if not chunk:
                        await delivering
                        break
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    def _refuses(self, chunk: bytes) -> bool:
        if not chunk.startswith(METHODS):
            return False
        self.requests += 1
        refused = self._chance.random() < self.refused_share
        self.refused += refused
        return refused
