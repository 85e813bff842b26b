"""The far side: a backend's calls, served to one worker over a stream of bytes until it ends.

Sandboxes outlive the server, which holds nothing that a later one couldn't find again.
"""

import asyncio
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clotho.errors import SandboxUnavailable
from clotho.plugins.ssh.remote.calls import InstanceDescription, RemoteAnswer, RemoteCall, parsed_arguments
from clotho.plugins.ssh.remote.link import MAX_CALLS, Link, Reader, Received, Writer
from clotho.plugins.ssh.remote.messages import RemoteError, pack, unpack
from clotho.sandbox.backend import SandboxBackend, SandboxInstance
from clotho.sandbox.scratch import scratch, scratch_folder

MAX_INSTANCES = 10_000
"""Instances that are held open; those used longest ago are found again when they are asked for."""


async def serve(backend: SandboxBackend, reader: Reader, writer: Writer) -> None:
    """Answer calls until the stream ends; the calls under way are then given up."""
    with scratch_folder() as folder:
        server = _Server(backend, reader, writer, folder)
        await server.run()


class _Server:
    def __init__(self, backend: SandboxBackend, reader: Reader, writer: Writer, folder: Path) -> None:
        self._backend = backend
        self._folder = folder
        self._link = Link(reader, writer, self._file_of)
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._instances: OrderedDict[str, SandboxInstance] = OrderedDict()

    async def run(self) -> None:
        self._link.greet()
        await self._link.greeted()
        try:
            async for received in self._link.received():
                number = received.number
                if received.message is not None:
                    self._begin(received)
                elif (call := self._calls.get(number)) is not None:
                    call.cancel()
                else:
                    # given up before its message had come, perhaps after its file
                    self._file_of(number).unlink(missing_ok=True)
        finally:
            calls = list(self._calls.values())
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            self._link.close()

    def _file_of(self, number: int) -> Path:
        return self._folder / str(number)

    def _begin(self, received: Received) -> None:
        number = received.number
        if len(self._calls) >= MAX_CALLS or number in self._calls:
            raise SandboxUnavailable("a worker calls more than a sandbox host serves at once")
        call = self._calls[number] = asyncio.create_task(self._serve(received))
        call.add_done_callback(lambda _: self._calls.pop(number))

    async def _serve(self, received: Received) -> None:
        number = received.number
        sent = self._file_of(number)
        try:
            if received.file_error is not None:
                raise received.file_error
            with scratch() as to:
                answer = await self._answer(received.message or b"", sent, to)
                file = to if await asyncio.to_thread(to.exists) else None
                await self._link.send(number, pack(answer), file)
        except Exception as error:  # the caller waits for an answer, also where this one can't be sent
            await self._link.send(number, pack(RemoteAnswer(error=RemoteError.of(error))))
        finally:
            await asyncio.to_thread(sent.unlink, missing_ok=True)

    async def _answer(self, message: bytes, sent: Path, to: Path) -> RemoteAnswer:
        try:
            call = RemoteCall.model_validate(unpack(message))
            if call.verb == "create" and (restore := call.arguments.get("restore")):
                restore["blob"] = sent
            asked: SandboxBackend | SandboxInstance = self._backend
            if call.instance is not None:
                found = self._instances.get(call.instance)
                if found is None:
                    return RemoteAnswer(unknown_instance=True)
                self._instances.move_to_end(call.instance)
                asked = found
            arguments = parsed_arguments(call)
            if call.verb == "checkpoint":
                arguments["to"] = to
            result = await getattr(asked, call.verb)(**arguments)
        except ValidationError as error:
            return RemoteAnswer(
                error=RemoteError.of(SandboxUnavailable(f"a call that can't be read: {error}"))
            )
        except Exception as error:
            return RemoteAnswer(error=RemoteError.of(error))
        return RemoteAnswer(result=self._described(result))

    def _described(self, result: Any) -> Any:
        """The `result`; for an instance, which the server keeps under a handle, its description."""
        if not hasattr(result, "incarnation"):
            return result
        handle = secrets.token_hex(16)
        self._instances[handle] = result
        if len(self._instances) > MAX_INSTANCES:
            self._instances.popitem(last=False)
        return InstanceDescription(handle=handle, incarnation=result.incarnation, layout=result.layout)
