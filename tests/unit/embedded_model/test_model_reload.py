"""New weights under a running server: every token says which it was sampled from, and is really from these."""

import json
import os
import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.checkpoint import read_checkpoint
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import log_softmax
from tests.support import PATIENCE_SECONDS
from tests.unit.embedded_model.conftest import Json, ReferenceCase

RELOAD = "/collective_rpc"
BODY = {"method": "reload_weights"}
BEFORE = 20
ATTEMPTS = 20


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLED, tmp_path / "weights"))


def write(weights: Path, version: str, change: float) -> None:
    """Weights that are off by a little, in one step."""
    tensors = {name: each.astype(np.float32) for name, each in read_checkpoint(BUNDLED).tensors.items()}
    name = "model.layers.1.mlp.down_proj.weight"
    tensors[name] = tensors[name] * np.float32(1 + change)
    save_file(tensors, weights / "next", metadata={"weight_version": version})
    os.replace(weights / "next", weights / "model.safetensors")


def logprobs_of(policy: Policy, prompt: list[int], sampled: list[int]) -> list[float]:
    cache = KeyValueCache(policy.model.architecture)
    rows = [
        policy.model.extend([Extension(cache, tokens)])[0]
        for tokens in (prompt, *([t] for t in sampled[:-1]))
    ]
    return [float(log_softmax(row)[token]) for row, token in zip(rows, sampled, strict=True)]


@pytest.mark.slow
async def test_a_generation_goes_on_with_the_new_weights(
    tmp_path: Path, weights: Path, reference: dict[str, ReferenceCase]
) -> None:
    prompt = reference["chat_tools"].prompt_ids
    sampling = {"max_tokens": 400, "ignore_eos": True, "logprobs": 0, "seed": 5}
    asked = {"token_ids": prompt, "stream": True, "sampling_params": sampling}
    server = EmbeddedModelServer(tmp_path / "server.log", weights=weights)
    async with server, httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_SECONDS) as http:
        # Once more where this process stood still until the generation was over.
        for attempt in range(ATTEMPTS):
            old, version = Policy.load(weights), str(7 + attempt)
            tokens: list[int] = []
            logprobs: list[float] = []
            spans: list[Json] = []
            async with http.stream("POST", "/inference/v1/generate", json=asked) as stream:
                async for line in stream.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    choice = json.loads(line.removeprefix("data: "))["choices"][0]
                    tokens += choice["token_ids"]
                    logprobs += [each["logprob"] for each in choice["logprobs"]["content"]]
                    spans = choice["weight_versions"]
                    if len(tokens) == BEFORE:
                        write(weights, version, 0.05 * (attempt + 1))
                        answer = await http.post(RELOAD, json=BODY)
                        assert (answer.status_code, answer.json()) == (200, {"results": [version]})
            assert (await http.get("/health")).json()["weight_version"] == version
            if len(spans) > 1:
                break
        switch = spans[0]["end"]
        assert BEFORE <= switch < 400
        assert spans == [
            {"version": old.version, "start": 0, "end": switch},
            {"version": version, "start": switch, "end": 400},
        ]
        new = Policy.load(weights)
        assert logprobs[:switch] == logprobs_of(old, prompt, tokens)[:switch]
        assert logprobs[switch:] == logprobs_of(new, prompt, tokens)[switch:]

        async def refused(body: object) -> int:
            return (await http.post(RELOAD, json=body)).status_code

        assert await refused({"method": "shutdown"}) == 400
        (weights / "model.safetensors").write_bytes(b"half a file")
        assert await refused(BODY) == 409
        tensors = {"model.norm.weight": np.zeros(160, np.float32)}
        save_file(tensors, weights / "model.safetensors")
        assert await refused(BODY) == 409
        assert (await http.get("/health")).json()["weight_version"] == version
        # Prompts that were seen before are computed with the weights of now.
        write(weights, "newest", -0.05)
        assert (await http.post(RELOAD, json=BODY)).json() == {"results": ["newest"]}
        once = {**asked, "stream": False, "sampling_params": {**sampling, "max_tokens": 3}}
        answer = await http.post("/inference/v1/generate", json=once)
        assert answer.status_code == 200, answer.text + server.process.output
        choice = answer.json()["choices"][0]
        found = [each["logprob"] for each in choice["logprobs"]["content"]]
        assert found == logprobs_of(Policy.load(weights), prompt, choice["token_ids"])
        assert choice["weight_versions"] == [{"version": "newest", "start": 0, "end": 3}]
        # What a restart serves is the newest.
        await server.kill()
        await server.start()
        assert (await http.get("/health")).json()["weight_version"] == "newest"
