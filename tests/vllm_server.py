"""A real vLLM on this machine's processors, for tests that `make test-vllm` runs; `VLLM` names its program."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from clotho.embedded.model.bundled import TINY
from clotho.models.backend import LogprobsMode
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from tests.support import eventually

START_SECONDS = 1800.0
VARIABLES = (
    "VLLM_CPU_KVCACHE_SPACE=1",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800",
    "VLLM_NO_USAGE_STATS=1",
    "VLLM_SERVER_DEV_MODE=1",
    "DO_NOT_TRACK=1",
    "HF_HUB_OFFLINE=1",
)


@dataclass(frozen=True)
class Server:
    url: str
    mode: LogprobsMode


def vllm_program() -> Path:
    return Path(os.environ.get("VLLM", "vllm"))


@asynccontextmanager
async def vllm_server(model: Path, folder: Path, mode: LogprobsMode, context: int) -> AsyncIterator[Server]:
    """A server of the model in a folder, with its log in another; it is named as the embedded model is."""
    program, port = vllm_program(), free_port()
    # What a killed server was compiling is left in the cache, half written.
    variables = (f"PATH={program.parent}:{os.environ['PATH']}", f"TORCHINDUCTOR_CACHE_DIR={folder}/compiled")
    command = ["env", *variables, *VARIABLES, str(program), "serve"]
    command += [str(model), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", TINY]
    command += ["--dtype", "float32", "--max-model-len", str(context), "--max-num-seqs", "16"]
    command += ["--max-num-batched-tokens", str(context), "--enforce-eager", "--enable-scale-out"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    command += ["--logprobs-mode", f"{mode}_logprobs"]
    server = ChildProcess(command, folder / "log")
    url = f"http://127.0.0.1:{port}"
    await server.start()
    try:
        async with httpx.AsyncClient(timeout=5) as client:

            async def healthy() -> bool:
                assert server.running, server.output[-3_000:]
                try:
                    return (await client.get(f"{url}/health")).is_success
                except httpx.TransportError:
                    return False

            await eventually(healthy, "vLLM's answer", START_SECONDS)
        yield Server(url, mode)
    finally:
        await server.stop()
