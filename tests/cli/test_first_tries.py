"""Tries that fail, and what their author is told: the name stays free, and the reason is plain."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.temporal_server import TemporalServer
from clotho.environment.environment import json_item
from clotho.errors import EnvironmentFailed
from clotho.testing.script import Conversation, Question, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho
from tests.cluster import Cluster, cluster_in
from tests.support import ONE_FILE
from tests.workflows.scripts import run, say

DONE = Script(conversations=(Conversation(variants=((say("Done."),),)),))
ONE = ("--groups", "1", "--group-size", "1")


@pytest.fixture(scope="module")
async def beginners(temporal: TemporalServer, folder: Path) -> AsyncIterator[Cluster]:
    """Workers in an author's folder, without a way to the Hugging Face hub."""
    own = folder / "beginners"
    own.mkdir(mode=0o711)
    (own / "author.py").write_text(AUTHOR.replace("SCORE", "int('x')"))
    async with cluster_in(temporal, own / "cluster", "beginners") as cluster:
        away = ("env", "-C", str(own), "HF_ENDPOINT=http://127.0.0.1:9", f"HF_HOME={own}/hf")
        await cluster.start_worker(under=away)
        yield cluster


AUTHOR = """
from clotho.environment import Environment, EnvironmentConfig


class Config(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class Author(Environment):
    config_class = Config

    async def setup(self):
        self.items = iter(range(2))

    async def get_next_item(self):
        number = next(self.items, None)
        return None if number is None else {"number": number}

    def format_prompt(self, item):
        return "task"

    def compute_reward(self, item, result, ctx):
        return SCORE
"""


async def start(cluster: Cluster, *order: str | Path, command: str = "run") -> Finished:
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    variables = {"CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace}
    return await clotho(command, *order, *place, folder=cluster.folder.parent, environment=variables)


@pytest.mark.slow
async def test_a_wrong_model_takes_no_name(beginners: Cluster, embedded_model: EmbeddedModelServer) -> None:
    order = ("word_count", "--run", "named", "--model", f"{embedded_model.url}/v1", *ONE)
    wrong = await start(beginners, *order, "--model-name", "no-such-model", "--temperature", "0.5")
    assert wrong.status == 1
    assert "no-such-model" in wrong.error
    right = await start(beginners, *order, "--temperature", "0.1")
    assert (right.status, right.error) == (0, "")
    changed = await start(beginners, *order, "--temperature", "0.3", "--max-tokens", "7")
    assert changed.complaint.startswith(
        "clotho: run named exists with other settings (sampling.temperature: 0.1 in the store, 0.3 now; "
        "sampling.max_tokens: null in the store, 7 now); give them again"
    )


@pytest.mark.slow
async def test_a_tokenizer_that_can_not_be_fetched_fails_at_once_and_takes_no_name(
    beginners: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    order = ("word_count", "--run", "exact", "--model", f"{embedded_model.url}/v1", *ONE)
    tokens = ("--inference", "tokens", "--max-tokens", "8")
    wrong = await start(beginners, *order, *tokens, "--tokenizer", "nobody/has-this")
    assert wrong.status == 1
    assert "the tokenizer of 'nobody/has-this' isn't on this machine" in wrong.error
    assert "--tokenizer" in wrong.error
    looked = "http://127.0.0.1:9 ([Errno 111] Connection refused)"
    assert looked in wrong.error, "the hub's own client, which would try for minutes, isn't asked"
    right = await start(beginners, *order, *tokens)
    assert (right.status, right.error) == (0, "")


@pytest.mark.slow
async def test_fewer_items_than_groups_and_a_mended_environment_are_said(beginners: Cluster) -> None:
    order = ("author:Author", "--run", "mended", "--groups", "5", "--group-size", "1")
    async with serving(ScriptedModel(DONE)) as url:
        failed = await start(beginners, *order, "--model", url)
        assert failed.status == 1
        assert "there are only 2 items: the run has 2 groups, not 5" in failed.output
        assert "changed since" not in failed.output
        source = beginners.folder.parent / "author.py"
        source.write_text(AUTHOR.replace("SCORE", "1.0"))
        told = "changed since the run took its code: author.py; what is left is done with the new code"
        retried = await start(beginners, "mended", command="retry")
        assert told in retried.output, retried.error
        done = await start(beginners, *order, "--model", url)
        assert (done.status, done.error) == (0, "")
        left = await start(beginners, *order[:2], "left", *order[3:], "--model", url, "--detach")
        assert "there are only 2 items: the run has 2 groups, not 5" in left.output, left.error


@pytest.mark.slow
async def test_no_seeds_are_sent_where_none_are_wanted(beginners: Cluster) -> None:
    asked: list[Question] = []

    def policy(question: Question) -> ScriptedTurn:
        asked.append(question)
        return run("true") if question.turn == 0 else say("Done.")

    async with serving(ScriptedModel(DONE, policy=policy)) as url:
        order = (ONE_FILE, "--model", url, *ONE)
        assert (await start(beginners, *order, "--run", "seedless", "--no-seeds")).status == 0
        assert (await start(beginners, *order, "--run", "seeded")).status == 0
    assert [question.seed is None for question in asked] == [True, True, False, False]


async def test_items_that_are_no_json_are_refused_by_their_line(beginners: Cluster, tmp_path: Path) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text('{"a": 1}\n{"a": NaN}\n')
    refused = await start(
        beginners, ONE_FILE, "--run", "nan", "--model", "http://127.0.0.1:9", "--items", items
    )
    assert refused.complaint.endswith("items.jsonl:2: NaN and Infinity are no JSON: write null")
    with pytest.raises(EnvironmentFailed, match="isn't JSON: Out of range float"):
        json_item({"a": [float("nan")]})


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
async def test_a_disk_that_is_full_at_the_start_is_named(full_disk: Path, temporal: TemporalServer) -> None:
    (full_disk / "store").mkdir()
    await asyncio.to_thread(fill, full_disk / "ballast")
    order = ("run", "word_count", "--run", "full", "--model", "http://127.0.0.1:9/v1", "--model-name", "m")
    done = await clotho(*order, "--store", full_disk / "store", "--temporal", temporal.address)
    assert done.status == 1
    assert "No space left on device" in done.complaint


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return
