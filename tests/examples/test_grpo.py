"""The trainer's own mathematics, against finite differences and the embedded model."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.checkpoint import Architecture, RopeParameters
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import log_softmax
from examples.grpo_tiny import weights as weight_files
from examples.grpo_tiny.adamw import AdamW
from examples.grpo_tiny.comparison import Comparison
from examples.grpo_tiny.inbox import Inbox
from examples.grpo_tiny.kills import draw_strikes
from examples.grpo_tiny.layers import Array, Gradients
from examples.grpo_tiny.loss import Batch, batch_of, group_advantages, grpo_loss
from examples.grpo_tiny.model import sequence_logprobs
from examples.grpo_tiny.plot import plot
from examples.grpo_tiny.steps import Steps
from examples.grpo_tiny.train import Trainer
from examples.trainer.api import TrainingGroup
from examples.trainer.checks import Limits
from tests.support import PATIENCE_SECONDS

RESULTS = Path("examples/grpo_tiny/results")
SMALL = Architecture(
    model_type="qwen2",
    hidden_act="silu",
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=3,
    max_position_embeddings=32,
    vocab_size=17,
    rms_norm_eps=1e-6,
    eos_token_id=2,
    rope_parameters=RopeParameters(rope_theta=10000.0, rope_type="default"),
)


def small_weights(*, tied: bool) -> dict[str, Array]:
    draw = np.random.default_rng(3)
    width, inner = SMALL.hidden_size, 20
    sides = SMALL.num_key_value_heads * SMALL.head_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (17, width),
        "model.norm.weight": (width,),
    }
    for index in range(SMALL.num_hidden_layers):
        prefix = f"model.layers.{index}"
        for name, size in (("q", width), ("k", sides), ("v", sides)):
            shapes[f"{prefix}.self_attn.{name}_proj.weight"] = (size, width)
            shapes[f"{prefix}.self_attn.{name}_proj.bias"] = (size,)
        shapes[f"{prefix}.self_attn.o_proj.weight"] = (width, width)
        shapes[f"{prefix}.mlp.gate_proj.weight"] = shapes[f"{prefix}.mlp.up_proj.weight"] = (inner, width)
        shapes[f"{prefix}.mlp.down_proj.weight"] = (width, inner)
        shapes[f"{prefix}.input_layernorm.weight"] = shapes[f"{prefix}.post_attention_layernorm.weight"] = (
            width,
        )
    if not tied:
        shapes["lm_head.weight"] = (17, width)
    return {name: draw.standard_normal(shape) * 0.5 for name, shape in shapes.items()}


def numeric(
    function: Callable[[], float], array: Array, place: tuple[int, ...], width: float = 1e-5
) -> float:
    middle = array[place]
    array[place] = middle + width
    above = function()
    array[place] = middle - width
    below = function()
    array[place] = middle
    return (above - below) / (2 * width)


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_are_those_of_finite_differences(tied: bool) -> None:
    weights = small_weights(tied=tied)
    draw = np.random.default_rng(4)
    tokens = draw.integers(0, 17, (3, 9))
    pull = draw.standard_normal((3, 8))

    def value() -> float:
        return float((sequence_logprobs(SMALL, weights, tokens)[0] * pull).sum())

    gradients = sequence_logprobs(SMALL, weights, tokens)[1](pull)
    assert gradients.keys() == weights.keys()
    for name, gradient in gradients.items():
        for flat in draw.choice(gradient.size, min(4, gradient.size), replace=False):
            place = tuple(map(int, np.unravel_index(flat, gradient.shape)))
            expected = numeric(value, weights[name], place)
            assert gradient[place] == pytest.approx(expected, rel=1e-5, abs=1e-7), (name, place)


def test_the_forward_pass_is_the_embedded_engines() -> None:
    policy = Policy.load(BUNDLED)
    weights, version = weight_files.read(BUNDLED)
    assert version == policy.version
    draw = np.random.default_rng(5)
    rows = draw.integers(3, policy.model.architecture.vocab_size, (2, 40))
    padded = np.concatenate([rows, draw.integers(3, 99, (2, 5))], axis=1)
    logprobs, _ = sequence_logprobs(policy.model.architecture, weights, padded)
    for row, found in zip(rows, logprobs, strict=True):
        cache = KeyValueCache(policy.model.architecture)
        for position in range(39):
            expected = log_softmax(policy.model.extend([Extension(cache, [int(row[position])])]))[0]
            assert found[position] == pytest.approx(expected[row[position + 1]], abs=1e-4)


def group(**changes: Any) -> TrainingGroup:
    """The first row is trained on at two places, the second at one, the third nowhere."""
    return TrainingGroup.model_validate(
        {
            "tokens": [[1, 4, 5, 6], [1, 4, 7], [1, 4]],
            "masks": [[-100, 4, -100, 6], [-100, -100, 7], [-100, -100]],
            "scores": [1.0, 0.0, 0.5],
            "inference_logprobs": [[1.0, -0.5, 1.0, -2.0], [1.0, 1.0, -0.25], [1.0, 1.0]],
            "generation_params": {"weight_versions": [["0"], ["0"], []]},
            **changes,
        }
    )


def test_a_batch_has_what_is_trained_on_at_its_place() -> None:
    batch = batch_of([group(), group(scores=[1.0, 1.0, 1.0])])
    assert batch.tokens.tolist()[:3] == [[1, 4, 5, 6], [1, 4, 7, 0], [1, 4, 0, 0]]
    assert batch.trained.tolist()[:3] == [[True, False, True], [False, True, False], [False] * 3]
    assert batch.sampled_logprobs.tolist()[:3] == [[-0.5, 0, -2.0], [0, -0.25, 0], [0, 0, 0]]
    assert batch.advantages.tolist()[3:] == [0, 0, 0]
    assert batch.mean_score == 0.75
    with pytest.raises(ValueError, match="no logprobs"):
        batch_of([group(inference_logprobs=None)])


def test_advantages_are_normalised_in_their_group() -> None:
    assert group_advantages([1.0, 0.0, 0.0, 1.0]).tolist() == [1.0, -1.0, -1.0, 1.0]
    assert group_advantages([0.3, 0.3]).tolist() == [0.0, 0.0]


def test_parts_of_a_batch_have_its_loss_together() -> None:
    shape, (weights, _) = Architecture.read(BUNDLED), weight_files.read(BUNDLED)
    batch = batch_of(
        [
            group(),
            group(
                tokens=[[1, 9, 9, 9, 9, 9], [1, 4, 7], [1, 4]],
                masks=[[-100] * 4 + [9, 9], [-100, -100, 7], [-100] * 2],
                inference_logprobs=[[1.0] * 4 + [-3.0, -9.0], [1.0, 1.0, -5.0], [1.0] * 2],
            ),
        ]
    )
    logprobs, pullback = sequence_logprobs(shape, weights, batch.tokens)
    whole = grpo_loss(batch, logprobs, clip=0.2)
    expected = pullback(whole.by_logprobs)
    found, value = Gradients(), 0.0
    for part in batch.parts(2):
        logprobs, pullback = sequence_logprobs(shape, weights, part.tokens)
        loss = grpo_loss(part, logprobs, clip=0.2)
        value += loss.value
        for name, gradient in pullback(loss.by_logprobs).items():
            found.add(name, gradient)
    assert value == pytest.approx(whole.value, rel=1e-5)
    assert all(np.allclose(found[name], expected[name], rtol=1e-3, atol=1e-5) for name in expected)


@pytest.mark.parametrize("scores", [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
@pytest.mark.parametrize("drift", [0.0, 0.1, 0.5, -0.5])
def test_the_loss_and_its_gradient(scores: list[float], drift: float) -> None:
    batch = batch_of([group(scores=scores)], np.float64)
    logprobs = batch.sampled_logprobs + drift
    loss = grpo_loss(batch, logprobs, clip=0.2)
    for place in np.ndindex(*logprobs.shape):
        expected = numeric(lambda: grpo_loss(batch, logprobs, clip=0.2).value, logprobs, place)
        assert loss.by_logprobs[place] == pytest.approx(expected, abs=1e-8)
    if drift == 0:
        total = sum(batch.advantages[row] * batch.trained[row].sum() for row in range(3))
        assert loss.value == pytest.approx(-total / 3)
    assert loss.largest_drift == pytest.approx(abs(drift))
    # Rows 0 and 1 have opposite advantages: a large drift is held on the one or the other side.
    assert (loss.clipped > 0) == (abs(drift) > 0.2)


def test_adamw_makes_its_first_steps_as_long_as_its_rate_and_finds_a_minimum() -> None:
    weights = {"matrix": np.array([[3.0, -2.0]], np.float32), "gain": np.array([1.0], np.float32)}
    optimizer = AdamW(rate=0.1, decay=0.0)
    norm = optimizer.step(weights, {"matrix": np.array([[30.0, -40.0]], np.float32)})
    assert norm == pytest.approx(50)
    assert weights["matrix"].tolist()[0] == pytest.approx([2.9, -1.9], abs=1e-4)
    for _ in range(300):
        optimizer.step(weights, {"matrix": 2 * weights["matrix"]})
    assert np.abs(weights["matrix"]).max() < 0.05
    # Decay alone shortens matrices and leaves vectors.
    still = {name: np.zeros_like(each) for name, each in weights.items()}
    decayed = {"matrix": np.ones((1, 2), np.float32), "gain": np.ones(1, np.float32)}
    AdamW(rate=0.1, decay=0.5).step(decayed, still)
    assert decayed["matrix"].tolist()[0] == pytest.approx([0.95, 0.95])
    assert decayed["gain"].tolist() == [1.0]


def test_steps_on_a_batch_make_good_rows_likelier() -> None:
    """The whole of a trainer's step, on the real model."""
    policy = Policy.load(BUNDLED)
    shape = policy.model.architecture
    weights, _ = weight_files.read(BUNDLED)
    draw = np.random.default_rng(6)
    tokens = draw.integers(3, 500, (4, 24))
    sampled, _ = sequence_logprobs(shape, weights, tokens)
    rows = [[1.0, *map(float, row)] for row in sampled]
    masks = [[-100] * 12 + list(map(int, row[12:])) for row in tokens]
    groups = [
        TrainingGroup(
            tokens=tokens.tolist(), masks=masks, scores=[1.0, 0.0, 1.0, 0.0], inference_logprobs=rows
        )
    ]
    batch = batch_of(groups)
    optimizer = AdamW(rate=3e-4)
    values = []
    for _ in range(4):
        logprobs, pullback = sequence_logprobs(shape, weights, batch.tokens)
        loss = grpo_loss(batch, logprobs, clip=10.0)
        values.append(loss.value)
        optimizer.step(weights, pullback(loss.by_logprobs))
    assert values == sorted(values, reverse=True)
    after = trained_logprobs(batch, sequence_logprobs(shape, weights, batch.tokens)[0])
    assert (np.sign(after - trained_logprobs(batch, sampled)) == [1, -1, 1, -1]).all()


def trained_logprobs(batch: Batch, logprobs: Array) -> Array:
    summed: Array = np.where(batch.trained, logprobs, 0).sum(axis=1)
    return summed


async def test_a_trainer_that_is_started_again_goes_on_where_it_was(tmp_path: Path) -> None:
    folder, steps = tmp_path / "policy", Steps(tmp_path)
    weight_files.write_damaged(BUNDLED, folder, damage=0.05, seed=1)
    async with EmbeddedModelServer(tmp_path / "server.log", weights=folder) as server:
        first = Trainer(folder, server.url, steps, rate=1e-4)
        reports = [await asyncio.to_thread(first.train_on, [group()])]
        second = Trainer(folder, server.url, steps, rate=1e-4)
        reports.append(await asyncio.to_thread(second.train_on, [group()]))
        reports.append(await asyncio.to_thread(first.train_on, [group()]))
        asked = partial(httpx.get, f"{server.url}/health", timeout=PATIENCE_SECONDS)
        health = (await asyncio.to_thread(asked)).json()
    assert [report.step for report in reports] == [1, 2, 2]
    # Weights and moments both came back: the one that lived on makes the same step.
    clock = {"seconds", "finished"}
    assert reports[1].model_dump(exclude=clock) == reports[2].model_dump(exclude=clock)
    assert (reports[0].score, reports[0].trained, reports[0].lag) == (0.5, 3, 0)
    assert (reports[1].versions, reports[1].lag) == ((0,), 1)
    assert health["weight_version"] == "2"
    assert steps.reports() == [reports[0], reports[2]]


def test_damage_is_noise_on_matrices_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for name in ("policy", "again"):
        weight_files.write_damaged(BUNDLED, tmp_path / name, damage=0.05, seed=1)
    damaged, version = weight_files.read(tmp_path / "policy")
    again, _ = weight_files.read(tmp_path / "again")
    assert all((damaged[name] == again[name]).all() for name in damaged)
    original, _ = weight_files.read(BUNDLED)
    assert version == "0"
    name = "model.layers.0.mlp.up_proj.weight"
    assert (damaged[name] - original[name]).std() == pytest.approx(0.05 * original[name].std(), rel=0.02)
    assert (damaged["model.norm.weight"] == original["model.norm.weight"]).all()


def test_each_group_is_in_one_batch_whatever_is_served_again(tmp_path: Path) -> None:
    steps, limits = Steps(tmp_path), Limits(batch_size=6, max_token_len=8)
    one, two, three, four, five = ([group(group_id=f"g{number}")] for number in range(5))
    served = iter([[*one, *two], [*one, *two], [*two, *three], [*four, *five]])
    first = Inbox(steps, served, limits)
    assert first.batch(1) == [*one, *two]
    # A trainer that dies with a batch finds it again; the API, which died too, hands it out once more.
    second = Inbox(steps, served, limits)
    assert second.batch(1) == [*one, *two]
    assert second.batch(2) == three
    assert second.batch(3) == [*four, *five]
    assert steps.last_begun() == 3
    assert steps.served_again() == ["g0", "g1", "g1"]
    faulty = iter([[*one, *one], [group(group_id="bad", inference_logprobs=None)] * 2])
    with pytest.raises(ValueError, match="bad: has no logprobs"):
        Inbox(steps, faulty, limits).batch(4)


def test_kills_come_at_random_but_to_everybody() -> None:
    parts = ("model server", "API", "trainer")
    strikes = draw_strikes(parts, 4, 10, seed=3)
    assert strikes == draw_strikes(parts, 4, 10, seed=3) != draw_strikes(parts, 4, 10, seed=4)
    assert {strike.part for strike in strikes[:3]} == set(parts)
    assert [strike.step for strike in strikes] == sorted({strike.step for strike in strikes})
    assert all(2 <= strike.step <= 10 for strike in strikes)


def test_the_committed_plot_is_of_the_committed_figures() -> None:
    comparison = Comparison.model_validate_json((RESULTS / "comparison.json").read_text())
    assert plot(comparison) == (RESULTS / "comparison.svg").read_text()
    assert len(ElementTree.fromstring(plot(comparison)).findall("{*}polyline")) == 2
