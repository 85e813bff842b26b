"""mini-swe-agent in a sandbox with the tokens of a real vLLM: `make test-vllm`.

Not part of the suite, for the reasons of `tests/real_vllm.py`; it needs mini-swe-agent (`make harnesses`) too. The
model has the embedded policy's tokenizer, positions enough for mini-swe-agent's prompts, and random weights.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.models.backend import Inference
from clotho.models.rendering.rendering import Rendering
from clotho.rollouts.agent import Agent, AgentKind
from clotho.run_settings import RunSettings
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import read_end
from clotho.testing.scripted_model import serving
from clotho.training.siblings import read_siblings
from tests.cli.command import clotho, run
from tests.cluster import Cluster
from tests.fidelity_page import Table, write_row
from tests.harness.test_real_harnesses import INSTALLED, PLACE
from tests.support import ONE_FILE
from tests.token_servers import Relay
from tests.vllm_server import Server, vllm_program, vllm_server

CONTEXT = 16_000
ROLLOUTS = 2
COMMANDS = 5
CLOSE = 1e-4
"""Nats."""
CALLS = (
    r"""<tool_call>\n\{"name": "bash", "arguments": \{"command": "echo [a-z0-9 ]{1,40}"\}\}\n</tool_call>"""
)
ENDPOINTS = (Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS)
PROGRAM = Path(__file__).with_name("transformers_model.py")

Row = dict[str, Any]


@pytest.fixture(scope="module")
async def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (INSTALLED / "bin/mini").exists():
        pytest.skip("mini-swe-agent isn't installed: make harnesses")
    folder = Path(shutil.copytree(BUNDLED, tmp_path_factory.mktemp("model") / TINY))
    (folder / "model.safetensors").unlink()
    made = await run(interpreter(), PROGRAM, "randomize", folder, str(CONTEXT))
    assert made.status == 0, made.error
    return folder


@pytest.fixture(scope="module")
async def vllm(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with vllm_server(model, tmp_path_factory.mktemp("vllm"), "raw", CONTEXT) as server:
        yield server


@pytest.mark.parametrize("says", ["anything", "commands"])
@pytest.mark.parametrize("inference", ENDPOINTS)
async def test_all_that_was_sampled_is_in_rows(
    cluster: Cluster, vllm: Server, model: Path, inference: Inference, says: str
) -> None:
    """mini-swe-agent ends after three answers without a command, each of which it forgets.

    Where vLLM lets the model say nothing else, it runs commands. Their logprobs are those among the tokens allowed,
    in any mode: they can't be trained on, and aren't exported. The branches that rows are made of are looked at.
    """
    name, relay = f"mini-{inference}-{says}".replace("_", "-"), Relay(vllm.url)
    async with serving(relay) as url:
        handle = await cluster.start(
            name,
            url,
            environment=ONE_FILE,
            agent=Agent(kind=AgentKind.PROGRAM, program="mini-swe-agent"),
            model=TINY,
            inference=inference,
            rendering=Rendering(tokenizer=str(model), tool_call_parser="hermes"),
            max_tokens=120,
            extra_body={"structured_outputs": {"regex": CALLS}} if says == "commands" else None,
            group_size=ROLLOUTS,
            overrides={"max_agent_turns": COMMANDS},
            settings=RunSettings(
                mounts={PLACE: str(INSTALLED.resolve())}, plugins={"harness": {"path": f"{PLACE}/bin"}}
            ),
        )
        await handle.result()
    exported = await clotho("export", name, "--store", cluster.store, "--format", "tokens")
    assert exported.status == 0, exported.error
    rows: list[Row] = [json.loads(line) for line in exported.output.splitlines()]
    journal, sampled = cluster.open_journal(), 0
    if says == "commands":
        assert not rows and "1 biased" in exported.error, "its tokens were chosen among the allowed ones"
        ((_, group),) = await scored_groups(journal, name)
        branches = [each for sibling in await read_siblings(journal, group) for each in sibling.branches]
        rows = [branch.model_dump(mode="json") for branch in branches]
    for number in range(ROLLOUTS):
        rollout = f"{name}/g000000/r{number}"
        end = await read_end(journal, rollout)
        assert end is not None and end.summary.turns == (COMMANDS if says == "commands" else 3)
        own = [row for row in rows if row["rollout"] == rollout]
        assert len(own) == (1 if says == "commands" else 3), "calls extend each other, or begin anew"
        trained = [masked_in(row, "ids") for row in own]
        sent = [ids_sent(relay, f"{rollout}/turn/{turn:04}") for turn in range(end.summary.turns)]
        assert list(chain(*trained)) == list(chain(*sent)) and all(sent)
        sampled += sum(map(len, sent))
    in_rows = sum(len(masked_in(row, "ids")) for row in rows)
    assert in_rows == sampled
    off = [*chain(*map(off_by, rows, await recomputed(model, [row["ids"] for row in rows])))]
    # A choice among fewer tokens makes each of them likelier.
    assert min(off) > -CLOSE and (says == "commands" or max(off) < CLOSE)
    if "WRITE" in os.environ:
        longest = max(row["mask"].index(True) for row in rows)
        cells = (inference, says, ROLLOUTS, len(relay.asked), longest, len(rows), sampled)
        write_row(
            Path(os.environ["WRITE"]),
            Table.HARNESSES,
            2,
            (
                *map(str, cells),
                f"{in_rows / sampled:.0%}",
                f"{max(map(abs, off)):.1e}" if says == "anything" else "not comparable",
            ),
        )


def interpreter() -> Path:
    """vLLM's, which has torch and transformers."""
    program = shutil.which(vllm_program())
    assert program is not None
    return Path(program).with_name("python")


def ids_sent(relay: Relay, turn: str) -> list[int]:
    """The tokens of a turn as vLLM sent them."""
    events = [event for key, event in relay.told if key == turn]
    return [token for event in events for choice in event["choices"] for token in choice["token_ids"] or ()]


def masked_in(row: Row, field: str) -> list[Any]:
    return [value for value, mask in zip(row[field], row["mask"], strict=True) if mask]


async def recomputed(model: Path, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
    """Logprobs of all tokens but the first of each sequence."""
    process = await asyncio.create_subprocess_exec(
        interpreter(),
        PROGRAM,
        "logprobs",
        model,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(json.dumps(sequences).encode())
    assert process.returncode == 0
    found: list[list[float]] = json.loads(output)
    return found


def off_by(row: Row, logprobs: Sequence[float]) -> list[float]:
    """The differences of a row's logprobs from those that transformers computes."""
    own: list[float] = row["logprobs"][1:]
    of_row = zip(own, row["mask"][1:], logprobs, strict=True)
    return [of_server - other for of_server, mask, other in of_row if mask]
