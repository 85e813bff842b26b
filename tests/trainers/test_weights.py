"""Weights that a trainer writes for a model server: whole whenever they are read, under the step's version."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.checkpoint import Architecture, read_checkpoint
from clotho.errors import InvalidInput
from clotho.plugins.trainers.weights import SGLangWeights
from clotho.processes.ports import free_port
from clotho.testing.scripted_model import serving
from tests.support import eventually

Json = dict[str, Any]


class DiskUpdates:
    """A server that takes up weights as SGLang's documentation says."""

    def __init__(self, refuses: bool = False) -> None:
        self.asked: list[Json] = []
        self.read: list[str] = []
        """The weights that were there at each update, by their own version."""
        self._refuses = refuses
        self.app = Starlette(routes=[Route("/update_weights_from_disk", self._update, methods=["POST"])])

    async def _update(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(body)
        if self._refuses:
            return JSONResponse({"success": False, "message": "the shapes differ"}, status_code=400)
        folder = Path(body["model_path"])
        Architecture.read(folder)
        self.read.append(read_checkpoint(folder).version)
        return JSONResponse({"success": True, "message": "Succeeded.", "num_paused_requests": 0})


class Model:
    """The bundled policy, saved as a PyTorch model is."""

    def save_pretrained(self, folder: Path) -> None:
        shutil.copytree(BUNDLED, folder, dirs_exist_ok=True)


def trainer(step: int) -> Any:
    model = Model()
    tokenizer = SimpleNamespace(save_pretrained=lambda folder: (folder / "saved").write_text("tokenizer"))
    accelerator = SimpleNamespace(unwrap_model=lambda wrapped: wrapped)
    state = SimpleNamespace(global_step=step)
    return SimpleNamespace(state=state, accelerator=accelerator, model=model, processing_class=tokenizer)


@asynccontextmanager
async def served(server: DiskUpdates, port: int = 0) -> AsyncIterator[str]:
    async with serving(server, port) as url:
        yield url.removesuffix("/v1")


async def test_sglang_reads_each_step_s_weights_from_one_place(tmp_path: Path) -> None:
    server = DiskUpdates()
    async with served(server) as url:
        publish = SGLangWeights(tmp_path / "served", url)
        for step in (0, 1, 1):
            await asyncio.to_thread(publish, trainer(step))
    latest = tmp_path / "served" / "latest"
    assert server.asked == [
        {"model_path": str(latest), "weight_version": version} for version in ("0", "1", "1")
    ]
    assert server.read == [read_checkpoint(BUNDLED).version] * 3
    assert (latest / "saved").read_text() == "tokenizer"
    assert sorted(path.name for path in latest.parent.iterdir()) == sorted([latest.resolve().name, "latest"])


async def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    server = DiskUpdates()
    port = free_port()
    publishing = asyncio.create_task(
        asyncio.to_thread(SGLangWeights(tmp_path, f"http://127.0.0.1:{port}"), trainer(3))
    )
    await eventually(lambda: asyncio.to_thread((tmp_path / "latest").exists), "the weights are written")
    async with served(server, port):
        await publishing
    assert [body["weight_version"] for body in server.asked] == ["3"]


async def test_a_server_that_can_t_read_them_ends_training(tmp_path: Path) -> None:
    async with served(DiskUpdates(refuses=True)) as url:
        with pytest.raises(InvalidInput, match=r"400.*the shapes differ"):
            await asyncio.to_thread(SGLangWeights(tmp_path, url), trainer(1))
