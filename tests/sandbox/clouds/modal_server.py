"""A server of Modal's protocol on loopback: its control plane and the command router of its sandboxes."""

import asyncio
import base64
import json
import time
import uuid
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.protobuf import empty_pb2
from grpclib import GRPCError, Status
from grpclib.server import Server, Stream
from modal_proto import api_grpc, task_command_router_grpc
from modal_proto import api_pb2 as api
from modal_proto import task_command_router_pb2 as router

from tests.sandbox.clouds.box import Box, Failure, Made

CHUNK_BYTES = 65_536
FILE_TOOL = "/__modal/.bin/modal-sandbox-fs-tools"
STATUSES: dict[Failure, Status] = {
    "too many": Status.RESOURCE_EXHAUSTED,
    "outage": Status.DATA_LOSS,
    "wrong key": Status.UNAUTHENTICATED,
}
MISSING = "missing"
"""An image with this in its name can't be pulled."""


class ModalSandbox:
    def __init__(self, request: api.SandboxCreateV2Request, box: Box) -> None:
        self.definition = request.definition
        self.app = request.app_id
        self.tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        self.box = box
        self.created = time.time()

    async def run(self) -> None:
        """It ends with its command."""
        process = await self.box.run(list(self.definition.entrypoint_args))
        await process.communicate()
        await self.box.destroy()

    @property
    def made(self) -> Made:
        access = self.definition.network_access
        listed = access.network_access_type == api.NetworkAccess.ALLOWLIST
        return Made(
            self.box,
            self.definition.timeout_secs,
            self.definition.resources.memory_mb_max,
            {*access.allowed_domains, *access.allowed_cidrs}
            if listed
            else access.network_access_type == api.NetworkAccess.OPEN,
        )

    @property
    def alive(self) -> bool:
        return self.box.alive and time.time() < self.created + self.definition.timeout_secs


class ModalCommand:
    """A process of a sandbox, and all it has written."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.received = 0
        self._written = (bytearray(), bytearray())
        self._more = (asyncio.Event(), asyncio.Event())
        streams = (process.stdout, process.stderr)
        self._reading = [asyncio.create_task(self._read(number, each)) for number, each in enumerate(streams)]

    async def _read(self, number: int, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        while data := await stream.read(CHUNK_BYTES):
            self._written[number].extend(data)
            self._more[number].set()
        asyncio.get_running_loop().call_soon(self._more[number].set)

    async def output(self, number: int, offset: int) -> bytes:
        """What was written from `offset` on, as soon as there is any; nothing at its end."""
        while len(self._written[number]) <= offset and not self._reading[number].done():
            self._more[number].clear()
            await self._more[number].wait()
        return bytes(self._written[number][offset : offset + CHUNK_BYTES])

    async def write(self, data: bytes, offset: int, eof: bool) -> None:
        """A request that is sent again writes nothing twice."""
        stdin = self.process.stdin
        assert stdin is not None
        fresh = data[max(self.received - offset, 0) :]
        self.received += len(fresh)
        stdin.write(fresh)
        try:
            await stdin.drain()
        except ConnectionError as error:
            raise GRPCError(Status.FAILED_PRECONDITION, "the process has ended") from error
        if eof:
            stdin.close()


class ModalServer:
    """`failing` holds the errors that the next calls of a method fail with; `calls` counts them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sandboxes: dict[str, ModalSandbox] = {}
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, list[GRPCError]] = {}
        self._images: dict[bytes, str] = {}
        self._commands: dict[str, ModalCommand] = {}
        self._entered: list[asyncio.Task[None]] = []
        self._server: Server | None = None

    async def __aenter__(self) -> "ModalServer":
        bases = (api_grpc.ModalClientBase, task_command_router_grpc.TaskCommandRouterBase)
        self._server = Server([self._service(base) for base in bases])
        await self._server.start("127.0.0.1", 0)
        listening: Any = self._server._server
        self.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        # not waited for: since Python 3.12 that takes until clients have closed their connections
        self._server.close()
        for sandbox in self.sandboxes.values():
            await sandbox.box.destroy()
        await asyncio.gather(*self._entered)

    @property
    def builds(self) -> int:
        return self.calls["ImageGetOrCreate"]

    def running(self, name: str) -> list[Made]:
        found = (each for each in self._alive().values() if each.definition.name == name)
        return [each.made for each in found]

    def fail_creations(self, failure: Failure, times: int) -> None:
        self.failing["SandboxCreateV2"] = [GRPCError(STATUSES[failure], failure) for _ in range(times)]

    def _service(self, base: Any) -> Any:
        """An instance of a generated service, whose methods are this object's of the same name."""
        methods = {name: self._method(name) for name in base.__abstractmethods__}
        return type(base.__name__, (base,), methods)()

    def _method(self, name: str) -> Callable[[object, Stream[Any, Any]], Awaitable[None]]:
        streaming = getattr(self, f"stream_{name}", None)
        unary = getattr(self, f"call_{name}", None)

        async def serve(_: object, stream: Stream[Any, Any]) -> None:
            self.calls[name] += 1
            if self.failing.get(name):
                raise self.failing[name].pop(0)
            if streaming is not None:
                return await streaming(stream)  # type: ignore[no-any-return]
            if unary is None:
                raise GRPCError(Status.UNIMPLEMENTED, name)
            await stream.send_message(await unary(await stream.recv_message()))

        return serve

    # ---- the control plane ----

    async def call_ClientHello(self, _: object) -> api.ClientHelloResponse:
        return api.ClientHelloResponse()

    async def call_AuthTokenGet(self, _: object) -> api.AuthTokenGetResponse:
        return api.AuthTokenGetResponse(token=token())

    async def call_EnvironmentGetOrCreate(self, _: object) -> api.EnvironmentGetOrCreateResponse:
        settings = api.EnvironmentSettings(image_builder_version="2025.06")
        metadata = api.EnvironmentMetadata(name="main", settings=settings)
        return api.EnvironmentGetOrCreateResponse(environment_id="en-1", metadata=metadata)

    async def call_AppGetOrCreate(self, asked: api.AppGetOrCreateRequest) -> api.AppGetOrCreateResponse:
        return api.AppGetOrCreateResponse(app_id=f"ap-{asked.app_name}")

    async def call_ImageGetOrCreate(self, asked: api.ImageGetOrCreateRequest) -> api.ImageGetOrCreateResponse:
        content = asked.image.SerializeToString()
        if MISSING.encode() in content:
            failed = api.GenericResult(
                status=api.GenericResult.GENERIC_STATUS_FAILURE, exception=f"image not found: {MISSING}"
            )
            return api.ImageGetOrCreateResponse(image_id="im-failed", result=failed)
        image = self._images.setdefault(content, f"im-{len(self._images)}")
        done = api.GenericResult(status=api.GenericResult.GENERIC_STATUS_SUCCESS)
        return api.ImageGetOrCreateResponse(image_id=image, result=done)

    async def call_ImageFromId(self, asked: api.ImageFromIdRequest) -> api.ImageFromIdResponse:
        if asked.image_id not in self._images.values():
            raise GRPCError(Status.NOT_FOUND, f"no image {asked.image_id}")
        return api.ImageFromIdResponse(image_id=asked.image_id)

    async def call_SandboxCreateV2(self, asked: api.SandboxCreateV2Request) -> api.SandboxCreateV2Response:
        if any(each.definition.name == asked.definition.name for each in self._alive().values()):
            raise GRPCError(Status.ALREADY_EXISTS, f"Sandbox {asked.definition.name} already exists")
        id = f"sb-{uuid.uuid4().hex}"
        made = self.sandboxes[id] = ModalSandbox(asked, Box(self._folder / id))
        await made.box.start()
        self._entered.append(asyncio.create_task(made.run()))
        return api.SandboxCreateV2Response(
            sandbox_id=id, task_id=f"ta-{id}", command_router_access=self._access()
        )

    async def call_SandboxWaitV2(self, asked: api.SandboxWaitRequest) -> api.SandboxWaitResponse:
        self._require(asked.sandbox_id)
        if asked.sandbox_id in self._alive():
            return api.SandboxWaitResponse(result=api.GenericResult())
        ended = api.GenericResult(status=api.GenericResult.GENERIC_STATUS_TERMINATED)
        return api.SandboxWaitResponse(result=ended)

    async def call_SandboxGetTaskIdV2(
        self, asked: api.SandboxGetTaskIdRequest
    ) -> api.SandboxGetTaskIdResponse:
        self._require(asked.sandbox_id)
        return api.SandboxGetTaskIdResponse(task_id=f"ta-{asked.sandbox_id}")

    async def call_SandboxGetFromNameV2(
        self, asked: api.SandboxGetFromNameRequest
    ) -> api.SandboxGetFromNameResponse:
        for id, each in self._alive().items():
            if each.definition.name == asked.sandbox_name and each.app == f"ap-{asked.app_name}":
                return api.SandboxGetFromNameResponse(sandbox_id=id)
        raise GRPCError(Status.NOT_FOUND, f"no sandbox {asked.sandbox_name}")

    async def call_SandboxGetFromName(self, asked: api.SandboxGetFromNameRequest) -> None:
        """The older kind, which the client asks for next; there are none."""
        raise GRPCError(Status.NOT_FOUND, f"no sandbox {asked.sandbox_name}")

    async def call_SandboxListV2(self, asked: api.SandboxListRequest) -> api.SandboxListResponse:
        wanted = {tag.tag_name: tag.tag_value for tag in asked.tags}.items()
        listed = [
            api.SandboxInfo(id=id, created_at=each.created, name=each.definition.name, app_id=each.app)
            for id, each in self._alive().items()
            if wanted <= each.tags.items()
            and asked.app_id in ("", each.app)
            and (not asked.before_timestamp or each.created < asked.before_timestamp)
        ]
        return api.SandboxListResponse(sandboxes=listed)

    async def call_SandboxTagsSetV2(self, asked: api.SandboxTagsSetRequest) -> empty_pb2.Empty:
        tags = {tag.tag_name: tag.tag_value for tag in asked.tags}
        self._require(asked.sandbox_id).tags = tags
        return empty_pb2.Empty()

    async def call_SandboxTagsGetV2(self, asked: api.SandboxTagsGetRequest) -> api.SandboxTagsGetResponse:
        tags = self._require(asked.sandbox_id).tags.items()
        listed = [api.SandboxTag(tag_name=name, tag_value=value) for name, value in tags]
        return api.SandboxTagsGetResponse(tags=listed)

    async def call_SandboxTerminateV2(
        self, asked: api.SandboxTerminateRequest
    ) -> api.SandboxTerminateResponse:
        await self._require(asked.sandbox_id).box.destroy()
        return api.SandboxTerminateResponse()

    async def call_SandboxGetCommandRouterAccess(
        self, asked: api.SandboxGetCommandRouterAccessRequest
    ) -> api.SandboxGetCommandRouterAccessResponse:
        access = self._access()
        return api.SandboxGetCommandRouterAccessResponse(jwt=access.jwt, url=access.url)

    def _access(self) -> api.CommandRouterAccess:
        return api.CommandRouterAccess(jwt=token(), url=self.address)

    def _alive(self) -> dict[str, ModalSandbox]:
        return {id: each for id, each in self.sandboxes.items() if each.alive}

    def _require(self, id: str) -> ModalSandbox:
        if id not in self.sandboxes:
            raise GRPCError(Status.NOT_FOUND, f"no sandbox {id}")
        return self.sandboxes[id]

    # ---- the command router ----

    async def call_TaskExecStart(self, asked: router.TaskExecStartRequest) -> router.TaskExecStartResponse:
        sandbox = self._alive().get(asked.task_id.removeprefix("ta-"))
        if sandbox is None:
            raise GRPCError(Status.NOT_FOUND, f"no task {asked.task_id}")
        if asked.exec_id not in self._commands:
            arguments = list(asked.command_args)
            if arguments[0].startswith(FILE_TOOL):
                path = json.loads(arguments[1])["WriteFile"]["path"]
                arguments = ["sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path]
            self._commands[asked.exec_id] = ModalCommand(await sandbox.box.run(arguments))
        return router.TaskExecStartResponse()

    async def call_TaskExecWait(self, asked: router.TaskExecWaitRequest) -> router.TaskExecWaitResponse:
        code = await self._commands[asked.exec_id].process.wait()
        if code < 0:
            return router.TaskExecWaitResponse(signal=-code)
        return router.TaskExecWaitResponse(code=code)

    async def call_TaskExecPoll(self, asked: router.TaskExecPollRequest) -> router.TaskExecPollResponse:
        code = self._commands[asked.exec_id].process.returncode
        return router.TaskExecPollResponse() if code is None else router.TaskExecPollResponse(code=code)

    async def call_TaskExecStdinWrite(
        self, asked: router.TaskExecStdinWriteRequest
    ) -> router.TaskExecStdinWriteResponse:
        await self._commands[asked.exec_id].write(asked.data, asked.offset, asked.eof)
        return router.TaskExecStdinWriteResponse()

    async def stream_TaskExecStdinWriteStream(self, stream: Stream[Any, Any]) -> None:
        command: ModalCommand | None = None
        async for message in stream:
            if message.HasField("start"):
                command = self._commands[message.start.exec_id]
            assert command is not None
            if message.HasField("data"):
                await command.write(message.data, command.received, False)
            elif message.HasField("end"):
                await command.write(b"", command.received, True)
        await stream.send_message(router.TaskExecStdinWriteStreamResponse())

    async def stream_TaskExecStdioRead(self, stream: Stream[Any, Any]) -> None:
        asked = await stream.recv_message()
        number = int(asked.file_descriptor != router.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT)
        offset = asked.offset
        while data := await self._commands[asked.exec_id].output(number, offset):
            await stream.send_message(router.TaskExecStdioReadResponse(data=data))
            offset += len(data)


def token() -> str:
    """What the client takes for a token that is good for an hour."""
    parts = ({"alg": "none"}, {"exp": int(time.time()) + 3600})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*encoded, "x"))
