"""A trainer's weights, written to disk under a version and read by the model server."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import save

from clotho.embedded.model.checkpoint import VERSION_KEY
from clotho.errors import InvalidInput

FILE = "model.safetensors"
LATEST, WRITTEN = "latest", "weights-"
RELOAD_SECONDS = 60.0
"""Seconds that a server may take to answer; then it is asked again."""
RETRY_SECONDS = 0.5
AWAY = (502, 503, 504)


class ServedWeights:
    """Writes a PyTorch trainer's weights into the folder of an embedded server, under the step as their version."""

    def __init__(self, folder: Path, server: str) -> None:
        self._path = folder / FILE
        self._server = server

    def __call__(self, trainer: Any) -> None:
        """Have the server sample from them; one that is away is waited for. Raises InvalidInput if it refuses."""
        version = str(trainer.state.global_step)
        self._write(trainer.accelerator.unwrap_model(trainer.model), version)
        (served,) = _ask(f"{self._server}/collective_rpc", {"method": "reload_weights"})["results"]
        # a server of another folder reloads without an error
        if str(served) != version:
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
        # the server may read at any time: it finds the old file or the new one, each whole
        beside.rename(self._path)


class SGLangWeights:
    """Writes a trainer's model into a folder, and has an SGLang server read it, under the step as its version.

    Start the server with `--model-path FOLDER/latest` once it is there: one that is started again has them, too.
    """

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._server = server

    def __call__(self, trainer: Any) -> None:
        """Have the server sample from them; one that is away is waited for. Raises InvalidInput if it refuses."""
        version = str(trainer.state.global_step)
        latest = self._write(trainer)
        answer = _ask(
            f"{self._server}/update_weights_from_disk", {"model_path": str(latest), "weight_version": version}
        )
        if not answer.get("success"):
            raise InvalidInput(f"{self._server} doesn't read {latest}: {str(answer.get('message'))[:300]}")

    def _write(self, trainer: Any) -> Path:
        """The link to the model's folder, which is whole whenever it is read."""
        self._folder.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(prefix=WRITTEN, dir=self._folder))
        written.chmod(0o755)  # the server may be another user's
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(written)
        trainer.processing_class.save_pretrained(written)
        # before the link leads to them: a power loss could else leave it at files without their content
        for path in (*written.rglob("*"), written):
            _flush(path)
        latest, beside = self._folder / LATEST, self._folder / f"{LATEST}.new"
        beside.unlink(missing_ok=True)
        beside.symlink_to(written.name)
        # over the old link: a server that is started meanwhile finds a model
        beside.replace(latest)
        for before in set(self._folder.glob(f"{WRITTEN}*")) - {written}:
            shutil.rmtree(before)
        return latest


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ask(url: str, body: dict[str, str]) -> dict[str, Any]:
    """The server's answer, once it is there. Raises InvalidInput if it refuses."""
    while True:
        try:
            answer = httpx.post(url, json=body, timeout=RELOAD_SECONDS)
        except httpx.TransportError:
            time.sleep(RETRY_SECONDS)
            continue
        if answer.is_success:
            return dict(answer.json())
        if answer.status_code not in AWAY:
            raise InvalidInput(f"{url} doesn't load weights: {answer.status_code} {answer.text[:300]}")
        time.sleep(RETRY_SECONDS)
