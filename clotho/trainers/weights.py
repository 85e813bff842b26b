"""A trainer's weights, as the embedded server reads them."""

import os
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import save

from clotho.embedded.model.checkpoint import VERSION_KEY
from clotho.errors import InvalidInput

FILE = "model.safetensors"
RELOAD_SECONDS = 60.0
RETRY_SECONDS = 0.5


class ServedWeights:
    """Writes a PyTorch trainer's weights into the folder of an embedded server, under the step as their version."""

    def __init__(self, folder: Path, server: str) -> None:
        self._path = folder / FILE
        self._server = server

    def __call__(self, trainer: Any) -> None:
        """Have the server sample from them; one that is away is waited for. Raises InvalidInput if it refuses."""
        version = str(trainer.state.global_step)
        self._write(trainer.accelerator.unwrap_model(trainer.model), version)
        while (served := self._reload()) is None:
            time.sleep(RETRY_SECONDS)
        if served != version:
            raise InvalidInput(f"{self._server} serves weights {served}: it doesn't read {self._path}")

    def _write(self, model: Any, version: str) -> None:
        tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
        tensors = {
            name: np.ascontiguousarray(tensor.detach().cpu().float().numpy())
            for name, tensor in model.state_dict().items()
            if name not in tied
        }
        beside = self._path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(save(tensors, metadata={"format": "pt", VERSION_KEY: version}))
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self._path)

    def _reload(self) -> str | None:
        """The version that is served from now on; None if the server is away."""
        try:
            answer = httpx.post(
                f"{self._server}/collective_rpc", json={"method": "reload_weights"}, timeout=RELOAD_SECONDS
            )
        except httpx.TransportError:
            return None
        if not answer.is_success:
            raise InvalidInput(
                f"{self._server} doesn't reload weights: {answer.status_code} {answer.text[:300]}"
            )
        (version,) = answer.json()["results"]
        return str(version)
