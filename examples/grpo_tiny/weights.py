"""Weights and the optimizer beside them: read, damaged, written under a version, and taken up by the server."""

import shutil
from pathlib import Path

import httpx
import numpy as np
from safetensors.numpy import load_file, save

from clotho.embedded.model.checkpoint import VERSION_KEY, read_checkpoint
from examples.grpo_tiny.adamw import AdamW
from examples.grpo_tiny.layers import Array
from examples.grpo_tiny.whole_files import write_whole

FILE = "model.safetensors"
MOMENTS = "optimizer-{version}.safetensors"
RELOAD_SECONDS = 60.0

Weights = dict[str, Array]


def read(folder: Path) -> tuple[Weights, str]:
    """Read the weights, in float32, and their version."""
    checkpoint = read_checkpoint(folder)
    return {name: each.astype(np.float32) for name, each in checkpoint.tensors.items()}, checkpoint.version


def read_optimizer(folder: Path, version: int, rate: float) -> AdamW:
    """The optimizer written with the weights of `version`; a fresh one for weights that were never trained."""
    optimizer = AdamW(rate, steps=version)
    moments = {"first": optimizer.first, "second": optimizer.second}
    if version > 0:
        for name, tensor in load_file(folder / MOMENTS.format(version=version)).items():
            moment, _, parameter = name.partition(".")
            moments[moment][parameter] = tensor
    return optimizer


def write(folder: Path, weights: Weights, optimizer: AdamW) -> None:
    """Under the version that the optimizer has made steps. The weights come last: with them the step counts."""
    version = optimizer.steps
    moments = {f"first.{name}": each for name, each in optimizer.first.items()}
    moments |= {f"second.{name}": each for name, each in optimizer.second.items()}
    beside = folder / MOMENTS.format(version=version)
    write_whole(beside, _packed(moments, version))
    write_whole(folder / FILE, _packed(weights, version))
    for old in set(folder.glob(MOMENTS.format(version="*"))) - {beside}:
        old.unlink()


def write_damaged(source: Path, folder: Path, damage: float, seed: int) -> None:
    """Make `folder` a copy of `source` with noise on every matrix, `damage` times its entries' deviation.

    The version is 0.
    """
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(FILE))
    weights, _ = read(source)
    draw = np.random.default_rng(seed)
    # A file's tensors are read in any order, and the same seed shall do the same damage.
    for name, each in sorted(weights.items()):
        if each.ndim > 1:
            noise = draw.standard_normal(each.shape) * damage * each.std()
            weights[name] = each + noise.astype(np.float32)
    write_whole(folder / FILE, _packed(weights, 0))


def reload(server: str) -> str:
    """Have the embedded server read its folder again. Returns the version that it samples from now."""
    answer = httpx.post(f"{server}/collective_rpc", json={"method": "reload_weights"}, timeout=RELOAD_SECONDS)
    (version,) = answer.raise_for_status().json()["results"]
    return str(version)


def _packed(tensors: Weights, version: int) -> bytes:
    contiguous = {name: np.ascontiguousarray(each) for name, each in tensors.items()}
    content: bytes = save(contiguous, metadata={VERSION_KEY: str(version)})
    return content
