"""A shell of a box in a terminal, as clouds offer it."""

import asyncio
import os
import pty
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.sandbox.clouds.box import VARIABLES, Box

CHUNK_BYTES = 65_536
SHELL = ("setsid", "-c", "bash", "-i", "-l")


class PtyProcess:
    def __init__(self, process: Process, master: int) -> None:
        self.process = process
        self._master = master
        self._loop = asyncio.get_running_loop()
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._writing = asyncio.Lock()
        self._loop.add_reader(master, self._read)

    @classmethod
    async def start(cls, box: Box, variables: Mapping[str, str] = {}) -> "PtyProcess":
        master, slave = pty.openpty()
        os.set_blocking(master, False)
        process = await asyncio.create_subprocess_exec(
            *await box.command(SHELL), stdin=slave, stdout=slave, stderr=slave, env={**VARIABLES, **variables}
        )
        os.close(slave)
        return cls(process, master)

    def _read(self) -> None:
        """EIO: nothing has the terminal open any more."""
        try:
            data = os.read(self._master, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._master)
        self._output.put_nowait(data)

    async def read(self) -> bytes:
        """b"" at the end."""
        return await self._output.get()

    async def write(self, data: bytes) -> None:
        async with self._writing:
            while data:
                try:
                    data = data[os.write(self._master, data) :]
                except BlockingIOError:
                    await self._until_writable()

    async def _until_writable(self) -> None:
        writable = asyncio.Event()
        self._loop.add_writer(self._master, writable.set)
        try:
            await writable.wait()
        finally:
            self._loop.remove_writer(self._master)

    def kill(self) -> None:
        """End the shell, or the program that it became."""
        started = self.process.pid
        with suppress(OSError):
            for child in Path(f"/proc/{started}/task/{started}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        await self.process.wait()
        self._loop.remove_reader(self._master)
        os.close(self._master)
