"""Other sizes than the bundled model's: grouped queries, a separate head, float32 weights."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.checkpoint import Architecture, read_checkpoint
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension, Qwen2
from clotho.errors import InvalidInput
from tests.unit.embedded_model.conftest import Json

Array = np.ndarray[Any, np.dtype[np.float64]]

CONFIG = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "vocab_size": 97,
    "rms_norm_eps": 1e-6,
    "eos_token_id": [5, 6],
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
}


def random_tensors(head: bool) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(2)
    width, inner, kv = 48, 80, 16
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (97, width),
        "model.norm.weight": (width,),
    }
    if head:
        shapes["lm_head.weight"] = (97, width)
    for index in range(3):
        layer = f"model.layers.{index}"
        for name, out in (("q", width), ("k", kv), ("v", kv)):
            shapes[f"{layer}.self_attn.{name}_proj.weight"] = (out, width)
            shapes[f"{layer}.self_attn.{name}_proj.bias"] = (out,)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (width, width)
        shapes[f"{layer}.mlp.gate_proj.weight"] = shapes[f"{layer}.mlp.up_proj.weight"] = (inner, width)
        shapes[f"{layer}.mlp.down_proj.weight"] = (width, inner)
        shapes[f"{layer}.input_layernorm.weight"] = shapes[f"{layer}.post_attention_layernorm.weight"] = (
            width,
        )
    scale = {1: 1.0, 2: 0.2}
    return {
        name: numbers.normal(size=shape).astype(np.float32) * np.float32(scale[len(shape)])
        for name, shape in shapes.items()
    }


def plain_logits(tensors: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """The textbook forward pass of the whole sequence in float64, one head at a time: the last row's logits."""

    def norm(x: Array, gain: Array) -> Array:
        normed: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain
        return normed

    def rope(x: Array) -> Array:
        angles = np.arange(len(x))[:, None] * 5000.0 ** (-np.arange(0, 8, 2) / 8)[None, :]
        a, b = x[:, :4], x[:, 4:]
        return np.hstack([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)])

    weights = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    x = weights["model.embed_tokens.weight"][tokens]
    for index in range(3):
        w = {
            name.split(f"layers.{index}.")[1]: t for name, t in weights.items() if f"layers.{index}." in name
        }
        h = norm(x, w["input_layernorm.weight"])
        q, k, v = (h @ w[f"self_attn.{n}_proj.weight"].T + w[f"self_attn.{n}_proj.bias"] for n in "qkv")
        mixed = []
        for head in range(6):
            own, shared = slice(head * 8, head * 8 + 8), slice(head // 3 * 8, head // 3 * 8 + 8)
            scores = rope(q[:, own]) @ rope(k[:, shared]).T / 8**0.5
            scores[np.triu_indices(len(tokens), 1)] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            mixed.append(p / p.sum(-1, keepdims=True) @ v[:, shared])
        x = x + np.hstack(mixed) @ w["self_attn.o_proj.weight"].T
        h = norm(x, w["post_attention_layernorm.weight"])
        gate = h @ w["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    head_weight = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    logits: Array = norm(x, weights["model.norm.weight"])[-1] @ head_weight.T
    return logits


@pytest.mark.parametrize("head", [True, False])
def test_forward_pass_of_another_shape(head: bool) -> None:
    tensors = random_tensors(head)
    model = Qwen2(
        Architecture.model_validate(CONFIG),
        {name: tensor.astype(np.float64) for name, tensor in tensors.items()},
    )
    tokens = [int(token) for token in np.random.default_rng(4).integers(0, 97, 60)]
    whole = KeyValueCache(model.architecture)
    logits = model.extend([Extension(whole, tokens)])[0]
    assert logits == pytest.approx(plain_logits(tensors, tokens), abs=2e-5)
    split = KeyValueCache(model.architecture)
    model.extend([Extension(split, tokens[:23])])
    assert (model.extend([Extension(split, tokens[23:])])[0] == logits).all()
    assert model.architecture.eos_token_ids == {5, 6}


def write_safetensors(path: Path, dtype: str, tensors: dict[str, np.ndarray]) -> None:
    header, body = {}, b""
    for name, tensor in tensors.items():
        content = tensor.tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": tensor.shape,
            "data_offsets": [len(body), len(body) + len(content)],
        }
        body += content
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + body)


def test_float32_checkpoint(tmp_path: Path) -> None:
    tensors = random_tensors(head=False)
    write_safetensors(tmp_path / "model.safetensors", "F32", tensors)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.tensors.keys() == tensors.keys()
    assert all((checkpoint.tensors[name] == tensor).all() for name, tensor in tensors.items())


def test_other_number_formats_are_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", "F16", {"x": np.zeros(3, np.float16)})
    with pytest.raises(InvalidInput, match="tensor x is F16"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "llama"},
        {"use_sliding_window": True},
        {"rope_parameters": {"rope_theta": 1, "rope_type": "yarn"}},
    ],
)
def test_other_architectures_are_refused(tmp_path: Path, change: Json) -> None:
    shutil.copytree(BUNDLED, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises(InvalidInput, match=next(iter(change))):
        Policy.load(tmp_path / "model")
