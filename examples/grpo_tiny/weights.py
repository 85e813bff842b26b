"""Weights on disk and in the server: started from, damaged, written under a version, and taken up."""

import os
import shutil
from pathlib import Path

import httpx
import numpy as np
from safetensors.numpy import load_file, save_file

from clotho.embedded.model.checkpoint import VERSION_KEY, read_checkpoint
from examples.grpo_tiny.adamw import AdamW
from examples.grpo_tiny.layers import Array

FILE = "model.safetensors"
MOMENTS = "optimizer.safetensors"
RELOAD_SECONDS = 60.0


def read(folder: Path) -> tuple[dict[str, Array], str]:
    """In float32, and their version."""
    checkpoint = read_checkpoint(folder)
    return {name: each.astype(np.float32) for name, each in checkpoint.tensors.items()}, checkpoint.version


def write(folder: Path, weights: dict[str, Array], version: int) -> None:
    """Whole or not at all: the server may read them at any time."""
    _replace(folder / FILE, weights, version)


def write_moments(folder: Path, optimizer: AdamW, version: int) -> None:
    """What the optimizer knows beside the weights of `version`."""
    tensors = {f"first.{name}": each for name, each in optimizer.first.items()}
    tensors |= {f"second.{name}": each for name, each in optimizer.second.items()}
    _replace(folder / MOMENTS, tensors, version)


def read_moments(folder: Path, optimizer: AdamW) -> None:
    """Nothing changes where there are none."""
    path = folder / MOMENTS
    if not path.exists():
        return
    for name, tensor in load_file(path).items():
        moment, _, parameter = name.partition(".")
        (optimizer.first if moment == "first" else optimizer.second)[parameter] = tensor


def start(source: Path, folder: Path, damage: float, seed: int) -> None:
    """Make `folder` a damaged copy of `source`, version 0; one that is there already is left as it is."""
    if (folder / FILE).exists():
        return
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE))
    weights, _ = read(source)
    write(folder, damaged(weights, damage, seed), 0)


def damaged(weights: dict[str, Array], damage: float, seed: int) -> dict[str, Array]:
    """With noise on every matrix, `damage` times as large as its entries are on average."""
    noise = np.random.default_rng(seed)
    return {
        name: each + (noise.standard_normal(each.shape) * damage * each.std()).astype(np.float32)
        if each.ndim > 1
        else each
        for name, each in weights.items()
    }


def reload(server: str) -> str:
    """Have the embedded server read its folder again. Returns the version that it samples from now."""
    answer = httpx.post(f"{server}/collective_rpc", json={"method": "reload_weights"}, timeout=RELOAD_SECONDS)
    (version,) = answer.raise_for_status().json()["results"]
    return str(version)


def _replace(path: Path, tensors: dict[str, Array], version: int) -> None:
    partial = path.with_suffix(".partial")
    contiguous = {name: np.ascontiguousarray(each) for name, each in tensors.items()}
    save_file(contiguous, partial, metadata={VERSION_KEY: str(version)})
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)
