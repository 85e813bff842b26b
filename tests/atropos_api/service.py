"""The API as a process: ours, or atroposlib's own to compare with; and groups to send."""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from clotho_client.tokens import read_token, token_file

from clotho.listeners.tokens import TokenAuth
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from tests.support import PATIENCE_SECONDS, eventually

CLOTHO = str(Path(sys.executable).with_name("clotho"))
TRAINER = {
    "wandb_group": "group",
    "wandb_project": "project",
    "batch_size": 8,
    "max_token_len": 64,
    "checkpoint_dir": "checkpoints",
    "save_checkpoint_interval": 5,
    "starting_step": 3,
    "num_steps": 100,
}
ENV = {
    "max_token_length": 64,
    "desired_name": "env",
    "weight": 1.0,
    "group_size": 4,
    "min_batch_allocation": None,
}


class Api:
    """One API at one port, over any number of deaths."""

    def __init__(
        self,
        folder: Path,
        *,
        stock: bool = False,
        file_blocks: int | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`file_blocks` limits every file that the process writes, in KiB: a full disk."""
        self.queue = folder / "queue.sqlite"
        self.port = free_port()
        self._log = folder / "api.log"
        own = [CLOTHO, "atropos-api", "--queue", str(self.queue)]
        command = [sys.executable, "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1"] if stock else own
        command += ["--port", str(self.port), *arguments]
        command = ["env", *(f"{name}={value}" for name, value in (environment or {}).items()), *command]
        self._plain = command
        if file_blocks is not None:
            command = ["bash", "-c", f'ulimit -f {file_blocks}; exec "$@"', "limited", *command]
        self._command = command
        self.process = ChildProcess(command, self._log)
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SECONDS, auth=TokenAuth())

    @property
    def head(self) -> str:
        """Lines that every request needs."""
        return f"host: localhost\r\nauthorization: Bearer {read_token(token_file(self.port))}\r\n"

    async def start(self) -> None:
        self.process = ChildProcess(self._command, self._log)
        await self.process.start()
        await eventually(self.answers, f"{self._command} answers")

    async def answers(self) -> bool:
        assert self.process.running, self.process.output
        try:
            return (await self.http.get("/")).is_success
        except httpx.TransportError:
            return False

    async def restart(self) -> None:
        """As after a crash."""
        await self.process.kill()
        await self.start()

    def without_limits(self) -> None:
        """From the next start on."""
        self._command = self._plain

    async def post(self, path: str, body: object, status: int = 200) -> Any:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str) -> Any:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def register(self, **changes: object) -> int:
        """A trainer that has asked for its first batch, and an environment. Returns the environment's number."""
        await self.post("/register", {**TRAINER, **changes})
        await self.get("/batch")
        return int((await self.post("/register-env", ENV))["env_id"])

    async def batch(self) -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] | None = (await self.get("/batch"))["batch"]
        return found


@asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[Api]:
    folder.mkdir(parents=True, exist_ok=True)
    api = Api(folder, **options)
    try:
        await api.start()
        yield api
    finally:
        await api.http.aclose()
        await api.process.kill()


def group(number: int, rows: int = 4, **changes: object) -> dict[str, object]:
    """A group that can be told from others by its tokens."""
    tokens = [[number, row, 7] for row in range(rows)]
    return {
        "tokens": tokens,
        "masks": [[-100, row, 7] for row in range(rows)],
        "scores": [float(row % 2) for row in range(rows)],
        "inference_logprobs": [[1.0, -0.5, -1e-05] for _ in range(rows)],
        "group_id": f"run/g{number:06}",
        **changes,
    }


def number_of(group: dict[str, Any]) -> int:
    return int(group["tokens"][0][0])
