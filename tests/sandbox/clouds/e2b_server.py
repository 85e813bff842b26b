"""A server of E2B's protocols on loopback: its API, and the daemon in each of its sandboxes."""

import asyncio
import datetime
import urllib.parse
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.process import process_connect, process_pb
from protobuf import Oneof
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from tests.sandbox.clouds.box import Box, Failure, Made
from tests.sandbox.clouds.pty_process import PtyProcess

KEY = "e2b_0000"
ENVD_VERSION = "0.6.4"
STATUSES: dict[Failure, int] = {"too many": 429, "outage": 500, "wrong key": 401}
MISSING = "missing"
"""An image with this in its name can't be pulled."""
CHUNK_BYTES = 65_536


class E2bSandbox:
    def __init__(self, asked: dict[str, Any], box: Box) -> None:
        self.id = uuid.uuid4().hex
        self.asked = asked
        self.box = box
        self.started = now()
        self.ends = self.started + datetime.timedelta(seconds=asked["timeout"])

    @property
    def alive(self) -> bool:
        return self.box.alive and now() < self.ends

    @property
    def network(self) -> bool | set[str]:
        """A list counts with all else denied."""
        asked = self.asked.get("network") or {}
        if asked.get("denyOut") == ["0.0.0.0/0"]:
            return set(asked["allowOut"])
        return bool(self.asked.get("allow_internet_access", True))

    def described(self) -> dict[str, Any]:
        return {
            "templateID": self.asked["templateID"],
            "sandboxID": self.id,
            "clientID": "fake",
            "envdVersion": ENVD_VERSION,
            "startedAt": self.started.isoformat(),
            "endAt": self.ends.isoformat(),
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 10_240,
            "state": "running",
            "metadata": self.asked.get("metadata") or {},
        }


class E2bServer:
    """`failing` holds the answers that the next calls of a path get instead; `calls` counts them all.

    The next sandbox that is made shows only when `shows` is set.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sandboxes: dict[str, E2bSandbox] = {}
        self.templates: dict[str, dict[str, Any]] = {}
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, list[int]] = {}
        self.shows: asyncio.Event | None = None
        self._processes = Processes(self)

    async def __aenter__(self) -> "E2bServer":
        routes = [
            self._route("POST", "/v2/sandboxes", self._create),
            self._route("GET", "/v2/sandboxes", self._list),
            self._route("DELETE", "/sandboxes/{id}", self._kill),
            self._route("POST", "/v2/sandboxes/{id}/connect", self._connect),
            self._route("POST", "/sandboxes/{id}/connect", self._connect),
            self._route("POST", "/sandboxes/{id}/timeout", self._set_timeout),
            self._route("GET", "/templates/aliases/{name}", self._template),
            self._route("POST", "/v3/templates", self._request_build),
            self._route("POST", "/v2/templates/{name}/builds/{build}", self._build),
            self._route("GET", "/templates/{name}/builds/{build}/status", self._build_status),
            Route("/files", self._write, methods=["POST"]),
            Route("/health", self._health),
            Mount("/", process_connect.ProcessASGIApplication(self._processes)),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            port=0,
            log_config=None,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=3600,  # a connection that ends as it is used again is an outage to the package
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server._serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        self.address = "http://127.0.0.1:" + str(self._server.servers[0].sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._processes.close()
        for sandbox in self.sandboxes.values():
            await sandbox.box.destroy()
        self._server.should_exit = True
        await self._serving

    @property
    def builds(self) -> int:
        return self.calls["POST /v3/templates"]

    def running(self, name: str) -> list[Made]:
        found = (each for each in self._alive() if name in each.asked["metadata"].values())
        return [
            Made(
                each.box,
                (each.ends - each.started).total_seconds(),
                self.templates[each.asked["templateID"]]["memoryMB"],
                each.network,
            )
            for each in found
        ]

    def fail_creations(self, failure: Failure, times: int) -> None:
        self.failing["POST /v2/sandboxes"] = [STATUSES[failure]] * times

    def _alive(self) -> list[E2bSandbox]:
        return [each for each in self.sandboxes.values() if each.alive]

    def _route(self, method: str, path: str, serve: Any) -> Route:
        key = f"{method} {path}"

        async def endpoint(request: Request) -> Response:
            self.calls[key] += 1
            if request.headers.get("X-API-KEY") != KEY:
                return refusal(401, "invalid key")
            if self.failing.get(key):
                return refusal(self.failing[key].pop(0), "as the test wants it")
            answer: Response = await serve(request)
            return answer

        return Route(path, endpoint, methods=[method])

    # ---- the API ----

    async def _create(self, request: Request) -> Response:
        asked = await request.json()
        if asked["templateID"] not in self.templates:
            return refusal(404, f"template {asked['templateID']} not found")
        made = E2bSandbox(asked, Box(self._folder / uuid.uuid4().hex))
        shows, self.shows = self.shows, None
        await made.box.start()
        if shows is not None:
            await shows.wait()
        self.sandboxes[made.id] = made
        return JSONResponse(made.described(), 201)

    async def _list(self, request: Request) -> Response:
        wanted = {
            urllib.parse.unquote(name): urllib.parse.unquote(value)
            for name, value in urllib.parse.parse_qsl(request.query_params.get("metadata", ""))
        }
        found = [each.described() for each in self._alive()]
        return JSONResponse([each for each in found if wanted.items() <= each["metadata"].items()])

    async def _kill(self, request: Request) -> Response:
        found = self._found(request)
        if found is None:
            return refusal(404, "sandbox not found")
        await found.box.destroy()
        return Response(status_code=204)

    async def _connect(self, request: Request) -> Response:
        found = self._found(request)
        if found is None:
            return refusal(404, "sandbox not found")
        asked = datetime.timedelta(seconds=(await request.json())["timeout"])
        found.ends = max(found.ends, now() + asked)
        return JSONResponse(found.described())

    async def _set_timeout(self, request: Request) -> Response:
        found = self._found(request)
        if found is None:
            return refusal(404, "sandbox not found")
        found.ends = now() + datetime.timedelta(seconds=(await request.json())["timeout"])
        return Response(status_code=204)

    async def _template(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.templates:
            return refusal(404, "template not found")
        return JSONResponse({"templateID": name, "public": False})

    async def _request_build(self, request: Request) -> Response:
        asked = await request.json()
        self.templates[f"{asked['name']}/asked"] = asked
        answer = {"templateID": asked["name"], "buildID": "1", "public": False}
        return JSONResponse({**answer, "names": [asked["name"]], "tags": [], "aliases": [asked["name"]]}, 202)

    async def _build(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.templates[name] = {**self.templates.pop(f"{name}/asked"), **await request.json()}
        return Response(status_code=202)

    async def _build_status(self, request: Request) -> Response:
        name = request.path_params["name"]
        failed = MISSING in self.templates[name]["fromImage"]
        answer = {"logs": [], "logEntries": [], "templateID": name, "buildID": "1"}
        if failed:
            del self.templates[name]
            return JSONResponse({**answer, "status": "error", "reason": {"message": "image not found"}})
        return JSONResponse({**answer, "status": "ready"})

    # ---- the daemon ----

    async def _write(self, request: Request) -> Response:
        sandbox = self.asked_of(request.headers)
        if sandbox is None:
            return refusal(502, "The sandbox was not found")
        path = sandbox.box.path(request.query_params["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(await request.body())
        return JSONResponse([{"path": request.query_params["path"], "name": path.name, "type": "file"}])

    async def _health(self, request: Request) -> Response:
        alive = self.asked_of(request.headers) is not None
        return Response(status_code=204) if alive else refusal(502, "The sandbox was not found")

    def asked_of(self, headers: Any) -> E2bSandbox | None:
        sandbox = self.sandboxes.get(headers.get("e2b-sandbox-id"))
        return sandbox if sandbox is not None and sandbox.alive else None

    def _found(self, request: Request) -> E2bSandbox | None:
        found = self.sandboxes.get(request.path_params["id"])
        return found if found is not None and found.alive else None


class Processes(process_connect.Process):  # type: ignore[misc]
    """The processes of all sandboxes, whose ids are unique here."""

    def __init__(self, server: E2bServer) -> None:
        self._server = server
        self._terminals: dict[int, PtyProcess] = {}

    async def close(self) -> None:
        for terminal in self._terminals.values():
            await terminal.close()

    async def start(self, request: Any, ctx: Any) -> AsyncIterator[process_pb.StartResponse]:
        sandbox = self._server.asked_of(ctx.request_headers)
        if sandbox is None:
            raise ConnectError(Code.UNAVAILABLE, "The sandbox was not found")
        if request.pty is not None:
            terminal = await PtyProcess.start(sandbox.box, dict(request.process.envs))
            process = terminal.process
            self._terminals[process.pid] = terminal
            yield _event("start", process_pb.ProcessEvent.StartEvent(pid=process.pid))
            while data := await terminal.read():
                yield _event("data", process_pb.ProcessEvent.DataEvent(output=Oneof("pty", data)))
            await terminal.process.wait()
        else:
            arguments = [request.process.cmd, *request.process.args]
            process = await sandbox.box.run(arguments, dict(request.process.envs))
            yield _event("start", process_pb.ProcessEvent.StartEvent(pid=process.pid))
            for name, data in zip(("stdout", "stderr"), await process.communicate(), strict=True):
                if data:
                    yield _event("data", process_pb.ProcessEvent.DataEvent(output=Oneof(name, data)))
        code = process.returncode or 0
        yield _event("end", process_pb.ProcessEvent.EndEvent(exit_code=code, exited=True, status="exited"))

    async def send_input(self, request: Any, ctx: Any) -> process_pb.SendInputResponse:
        await self._terminal(request).write(request.input.input.value)
        return process_pb.SendInputResponse()

    async def send_signal(self, request: Any, ctx: Any) -> process_pb.SendSignalResponse:
        self._terminal(request).kill()
        return process_pb.SendSignalResponse()

    def _terminal(self, request: Any) -> PtyProcess:
        terminal = self._terminals.get(request.process.selector.value)
        if terminal is None or terminal.process.returncode is not None:
            raise ConnectError(Code.NOT_FOUND, "process not found")
        return terminal


def _event(kind: Any, event: Any) -> process_pb.StartResponse:
    return process_pb.StartResponse(event=process_pb.ProcessEvent(event=Oneof(kind, event)))


def refusal(status: int, message: str) -> Response:
    return JSONResponse({"code": status, "message": message}, status)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
