"""An environment of the in-memory design, run by its own program."""

import json
import re
from pathlib import Path

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.identifiers.keys import scored_key
from clotho.rollouts.group import GroupEntry
from tests.atropos.adapter import (
    GROUP_SIZE,
    Adapter,
    command,
    name_of,
    register_trainer,
    serving,
    take_groups,
)
from tests.atropos_api.service import running
from tests.cluster import Cluster
from tests.support import eventually

PROGRAM = ("-m", "examples.scored_files")


@pytest.mark.slow
async def test_rewards_run_on_the_one_instance_and_wait_while_it_is_down(
    cluster: Cluster, embedded_model: EmbeddedModelServer, folder: Path
) -> None:
    async with (
        running(folder / "api-ported") as api,
        serving(
            cluster,
            "ported",
            embedded_model,
            api,
            program=PROGRAM,
            environment=None,
            max_open_groups=3,
            ensure_scores_are_not_same=False,
        ) as adapter,
    ):
        await register_trainer(api)
        await adapter.start(CLOTHO_FAIL="reward.opened:kill@3")
        assert await adapter.process.wait() != 0
        await adapter.start()
        groups = await take_groups(api, 4)
        journal = cluster.open_journal()
        for group in groups:
            entry = await journal.read_required(scored_key(name_of(group)), GroupEntry)
            assert entry.repairs == (), "no rollout failed for it"
            assert all(score > 0 for score in group["scores"])
        assert len({name_of(group) for group in groups}) == len(groups)
        assert adapter.process.running


@pytest.mark.slow
async def test_what_wraps_its_hooks_sees_every_rollout_and_group(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    path = cluster.folder / "wrapped.jsonl"
    argv = command(
        cluster,
        "process",
        "ported-process",
        embedded_model.url,
        program=("-m", "tests.atropos.wrapped_files"),
        environment=None,
        total_steps=2,
        words=1,
        data_path_to_save_groups=path,
    )
    adapter = Adapter(cluster, cluster.folder / "ported-process.log", argv)
    await adapter.start()
    assert await adapter.process.wait() == 0, adapter.process.output
    groups = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(groups) == 2
    journal = cluster.open_journal()
    for group in groups:
        assert len(group["tokens"]) == GROUP_SIZE and all(group["tokens"])
        assert "containing exactly the text" in group["messages"][0][0]["content"]
        entry = await journal.read_required(scored_key(name_of(group)), GroupEntry)
        assert group["scores"] == [sibling.score / 2 for sibling in entry.siblings]
        assert list(map(len, group["distill_token_ids"])) == list(map(len, group["tokens"]))
    kept = re.findall(r"rewards kept: (\d+), tools: (\d+)", adapter.process.output)
    assert sum(int(rewards) for rewards, _ in kept) == 2 * GROUP_SIZE
    assert all(int(tools) > 0 for _, tools in kept)


@pytest.mark.slow
async def test_an_evaluation_by_hand_looks_into_the_workspaces(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    """The agent loop and the context are built by hand, and are durable underneath."""
    folder, wandb_folder = cluster.folder / "ported-evaluation", cluster.folder / "ported-wandb"
    wandb_folder.mkdir()
    argv = command(
        cluster,
        "evaluate",
        "ported-evaluate",
        embedded_model.url,
        program=PROGRAM,
        environment=None,
        evaluation_groups=2,
        data_dir_to_save_evals=folder,
        use_wandb=True,
        wandb_folder=wandb_folder,
    )
    adapter = Adapter(cluster, cluster.folder / "ported-evaluate.log", argv)
    await adapter.start()
    assert await adapter.process.wait() == 0, adapter.process.output
    metrics = json.loads((folder / "metrics.json").read_text())["results"]["all"]
    assert metrics["eval/mean_reward"] > 0
    (record,) = wandb_folder.rglob("run-*.wandb")

    async def logged() -> bool:  # its own process writes the file
        return b"eval/mean_reward" in record.read_bytes()

    await eventually(logged, "a wandb run of its own")
