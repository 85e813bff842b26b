"""One model server process for all tests here, and the same model in this process.

reference.json was computed by Hugging Face transformers in float32: greedy continuations and their logprobs.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.policy import Policy
from tests.support import PATIENCE_SECONDS

Json = dict[str, Any]
"""What an endpoint takes or answers, looked into at every depth."""


@dataclass(frozen=True)
class ReferenceCase:
    name: str
    messages: list[Json] | None
    tools: list[Json] | None
    prompt_ids: list[int]
    output_ids: list[int]
    logprobs: list[float]
    top5_first3: list[Json]
    finish: str


def reference_cases() -> list[ReferenceCase]:
    cases = json.loads((Path(__file__).parent / "reference.json").read_text())["cases"]
    fields = ReferenceCase.__dataclass_fields__
    return [ReferenceCase(**{name: case.get(name) for name in fields}) for case in cases]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        cases = reference_cases()
        metafunc.parametrize("case", cases, ids=[case.name for case in cases])


@pytest.fixture(scope="session")
def reference() -> dict[str, ReferenceCase]:
    return {case.name: case for case in reference_cases()}


@pytest.fixture(scope="session")
def policy() -> Policy:
    return Policy.load(BUNDLED)


@pytest.fixture(scope="session")
async def model_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedModelServer]:
    async with EmbeddedModelServer(tmp_path_factory.mktemp("model") / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
async def http(model_server: EmbeddedModelServer) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(
        base_url=model_server.url, timeout=PATIENCE_SECONDS, limits=limits
    ) as client:
        yield client


@pytest.fixture(scope="session")
async def openai(model_server: EmbeddedModelServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{model_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def model(model_server: EmbeddedModelServer) -> str:
    return model_server.model


@pytest.fixture
def terminal_tool() -> Json:
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    return {
        "type": "function",
        "function": {"name": "terminal", "description": "Run a shell command", "parameters": parameters},
    }


@pytest.fixture
def task() -> list[Json]:
    return [{"role": "user", "content": "Create a file at ~/a.txt containing exactly the text: hello"}]
