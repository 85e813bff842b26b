"""A server of Daytona's protocols on loopback: its API, and the daemon in each of its sandboxes."""

import asyncio
import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, WSMsgType, web

from tests.sandbox.clouds.box import Box, Failure, Made
from tests.sandbox.clouds.pty_process import PtyProcess

KEY = "dtn_0000"
STATUSES: dict[Failure, int] = {"too many": 429, "outage": 500, "wrong key": 401}
MISSING = "missing"
"""An image with this in its name can't be pulled."""
MOST_BYTES = 1 << 30


class DaytonaSandbox:
    def __init__(self, asked: dict[str, Any], box: Box) -> None:
        self.id = str(uuid.uuid4())
        self.asked = asked
        self.box = box
        self.ttl = asked["ttlMinutes"]
        self.stopped = False
        self.terminals: dict[str, PtyProcess] = {}

    @property
    def network(self) -> bool | set[str]:
        lists = (self.asked.get(name) for name in ("domainAllowList", "networkAllowList"))
        return {host for each in lists if each for host in each.split(",")} or not self.asked[
            "networkBlockAll"
        ]

    def described(self, address: str) -> dict[str, Any]:
        state = "stopped" if self.stopped else "started" if self.box.alive else "destroyed"
        return {
            "id": self.id,
            "organizationId": "org",
            "name": self.asked["name"],
            "user": self.asked.get("user", "daytona"),
            "env": {},
            "labels": self.asked["labels"],
            "public": False,
            "networkBlockAll": self.asked["networkBlockAll"],
            "target": "here",
            "cpu": self.asked["cpu"],
            "gpu": 0,
            "memory": self.asked["memory"],
            "disk": self.asked["disk"],
            "kvm": False,
            "state": state,
            "desiredState": state,
            "toolboxProxyUrl": f"{address}/toolbox",
            "createdAt": "2026-01-01T00:00:00Z",
        }


class DaytonaServer:
    """`failing` holds the answers that the next creations get instead."""

    builds = 0
    """An image isn't asked for apart from sandboxes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sandboxes: list[DaytonaSandbox] = []
        self.failing: list[int] = []
        self.unknown: Counter[str] = Counter()

    async def __aenter__(self) -> "DaytonaServer":
        app = web.Application(client_max_size=MOST_BYTES)
        inside = "/toolbox/{name}"
        app.router.add_post("/api/sandbox", self._create)
        app.router.add_get("/api/sandbox", self._list)
        app.router.add_get("/api/sandbox/{name}", self._get)
        app.router.add_delete("/api/sandbox/{name}", self._delete)
        app.router.add_post("/api/sandbox/{name}/ttl/{minutes}", self._set_ttl)
        app.router.add_post(f"{inside}/process/execute", self._execute)
        app.router.add_post(f"{inside}/files/bulk-upload", self._upload)
        app.router.add_get(f"{inside}/process/pty/create-connect", self._terminal)
        app.router.add_delete(f"{inside}/process/pty/{{session}}", self._kill)
        app.router.add_route("*", "/{rest:.*}", self._unknown)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        for sandbox in self.sandboxes:
            await sandbox.box.destroy()
        await self._runner.cleanup()

    def running(self, name: str) -> list[Made]:
        found = (each for each in self.sandboxes if each.box.alive and each.asked["name"] == name)
        return [Made(each.box, each.ttl * 60, each.asked["memory"] * 1024, each.network) for each in found]

    def fail_creations(self, failure: Failure, times: int) -> None:
        self.failing = [STATUSES[failure]] * times

    async def stop(self, name: str) -> None:
        """Its processes end, and it stays."""
        (stopped,) = (each for each in self.sandboxes if each.box.alive and each.asked["name"] == name)
        await stopped.box.destroy()
        stopped.stopped = True

    def _running(self, request: web.Request) -> DaytonaSandbox:
        found = self._found(request)
        if found.stopped:
            text = json.dumps(refusal(400, "bad request: the sandbox isn't started"))
            raise web.HTTPBadRequest(text=text, content_type="application/json")
        return found

    def _found(self, request: web.Request) -> DaytonaSandbox:
        name = request.match_info["name"]
        for each in self.sandboxes:
            if (each.box.alive or each.stopped) and name in (each.id, each.asked["name"]):
                return each
        raise web.HTTPNotFound(
            text=json.dumps(refusal(404, "sandbox not found")), content_type="application/json"
        )

    async def _unknown(self, request: web.Request) -> web.Response:
        self.unknown[f"{request.method} {request.path}"] += 1
        return web.json_response(refusal(404, f"not served: {request.path}"), status=404)

    # ---- the API ----

    async def _create(self, request: web.Request) -> web.Response:
        if self.failing:
            status = self.failing.pop(0)
            return web.json_response(refusal(status, "as the test wants it"), status=status)
        if request.headers["Authorization"] != f"Bearer {KEY}":
            return web.json_response(refusal(401, "invalid key"), status=401)
        asked = await request.json()
        if any(each.box.alive and each.asked["name"] == asked["name"] for each in self.sandboxes):
            return web.json_response(refusal(409, "a sandbox of this name exists"), status=409)
        if MISSING in json.dumps(asked.get("buildInfo") or {}):
            return web.json_response(refusal(400, f"image not found: {MISSING}:1"), status=400)
        made = DaytonaSandbox(asked, Box(self._folder / uuid.uuid4().hex))
        self.sandboxes.append(made)
        await made.box.start()
        return web.json_response(made.described(self.address))

    async def _list(self, request: web.Request) -> web.Response:
        wanted = json.loads(request.query.get("labels", "{}")).items()
        found = [
            each.described(self.address)
            for each in self.sandboxes
            if each.box.alive and wanted <= each.asked["labels"].items()
        ]
        return web.json_response({"items": found, "nextCursor": None, "total": len(found)})

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._found(request).described(self.address))

    async def _delete(self, request: web.Request) -> web.Response:
        found = self._found(request)
        await found.box.destroy()
        found.stopped = False
        return web.json_response(found.described(self.address))

    async def _set_ttl(self, request: web.Request) -> web.Response:
        found = self._running(request)
        found.ttl = int(request.match_info["minutes"])
        return web.json_response(found.described(self.address))

    # ---- the daemon ----

    async def _execute(self, request: web.Request) -> web.Response:
        process = await self._running(request).box.run(["sh", "-c", (await request.json())["command"]])
        output, errors = await process.communicate()
        result = (output + errors).decode(errors="replace")
        return web.json_response({"exitCode": process.returncode, "result": result})

    async def _upload(self, request: web.Request) -> web.Response:
        box, path = self._running(request).box, Path()
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            content = bytes(await part.read())
            if str(part.name).endswith(".path"):
                path = box.path(content.decode())
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return web.json_response({})

    async def _terminal(self, request: web.Request) -> web.WebSocketResponse:
        sandbox = self._running(request)
        terminal = await PtyProcess.start(sandbox.box)
        sandbox.terminals[request.query["id"]] = terminal
        stream = web.WebSocketResponse(protocols=request.headers["Sec-WebSocket-Protocol"].split(", "))
        await stream.prepare(request)
        await stream.send_json({"type": "control", "status": "connected"})
        reading = asyncio.create_task(self._read(terminal, stream))
        async for message in stream:
            if message.type == WSMsgType.BINARY:
                await terminal.write(message.data)
        reading.cancel()
        await asyncio.wait([reading])
        await terminal.close()
        return stream

    async def _read(self, terminal: PtyProcess, stream: web.WebSocketResponse) -> None:
        while data := await terminal.read():
            await stream.send_bytes(data)
        await stream.close(message=b'{"exitCode": 0}')

    async def _kill(self, request: web.Request) -> web.Response:
        terminal = self._found(request).terminals.get(request.match_info["session"])
        if terminal is not None:
            terminal.kill()
        return web.json_response({})


def refusal(status: int, message: str) -> dict[str, Any]:
    return {"statusCode": status, "message": message}
