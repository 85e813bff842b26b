"""A network link that can be cut: connections stay open, and nothing passes until it is whole again."""

import asyncio
from contextlib import suppress

from clotho.processes.ports import HOST

CHUNK = 65_536


class Link:
    """Forwards TCP connections at `port` to `target_port`, both on this machine."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._whole = asyncio.Event()
        self._whole.set()
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        self._whole.clear()

    def heal(self) -> None:
        self._whole.set()

    async def stop(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            await self._whole.wait()
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(HOST, self._target_port)
                await self._both_ways(reader, writer, far_reader, far_writer)
        finally:
            writer.close()

    async def _both_ways(
        self,
        near_reader: asyncio.StreamReader,
        near_writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        ways = [
            asyncio.create_task(self._forward(near_reader, far_writer)),
            asyncio.create_task(self._forward(far_reader, near_writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            far_writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await self._whole.wait()
                writer.write(chunk)
                await writer.drain()
        await self._whole.wait()
