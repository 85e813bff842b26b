"""`process` and `evaluate`, as commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.runs.groups import scored_groups
from clotho.runs.manifest import read_endpoint, read_manifest
from tests.atropos.adapter import GROUP_SIZE, Adapter, command
from tests.cluster import Cluster
from tests.support import eventually

NOWHERE = "http://127.0.0.1:9"
FOLDERS = Path(__file__).parents[1] / "tasks" / "folders"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
async def test_a_killed_process_goes_on_with_the_same_file(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    path = cluster.folder / "groups.jsonl"
    argv = command(
        cluster, "process", "processed", embedded_model.url, total_steps=6, data_path_to_save_groups=path
    )
    adapter = Adapter(cluster, cluster.folder / "process.log", argv)
    await adapter.start()

    async def begun() -> bool:  # the last line may be half written
        return path.exists() and path.read_bytes().count(b"\n") >= 2

    await eventually(begun, "groups are written")
    await adapter.process.kill()
    with path.open("a") as file:
        file.write('{"torn')
    await adapter.start()
    assert await adapter.process.wait() == 0, adapter.process.output
    groups = lines(path)
    assert len({group["group_id"] for group in groups}) == len(groups)
    names = {group["generation_params"]["rollouts"][0].rpartition("/")[0] for group in groups}
    assert len(names) == 6
    assert all(len(group["tokens"]) == len(group["messages"]) == GROUP_SIZE for group in groups)
    assert "Group 0" in path.with_suffix(".html").read_text()
    assert not path.with_stem("groups_1").exists()
    assert "a-secret-key" not in adapter.process.log.read_text()


@pytest.mark.slow
async def test_chat_groups_are_written_with_empty_rows_by_whichever_server_answers(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    """Of several in a file one is down."""
    path = cluster.folder / "chat.jsonl"
    argv = command(
        cluster,
        "process",
        "processed-chat",
        embedded_model.url,
        NOWHERE,
        total_steps=1,
        inference="chat",
        data_path_to_save_groups=path,
    )
    adapter = Adapter(cluster, cluster.folder / "process-chat.log", argv)
    await adapter.start()
    assert await adapter.process.wait() == 0, adapter.process.output
    (group,) = lines(path)
    assert group["tokens"] == group["masks"] == [[]] * GROUP_SIZE
    assert group["generation_params"]["trainable"] is False
    endpoint = await read_endpoint(cluster.open_journal(), "processed-chat")
    assert endpoint is not None and len(endpoint.servers) == 2
    assert "a-secret-key" not in adapter.process.log.read_text()


@pytest.mark.slow
async def test_task_folders_are_rolled_out_for_a_trainer(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    path = cluster.folder / "tasks.jsonl"
    argv = command(
        cluster,
        "process",
        "processed-tasks",
        embedded_model.url,
        total_steps=1,
        environment=f"tasks:{FOLDERS / 'hello-file'}",
        environment_config='{"host_programs": true, "max_agent_turns": 2}',
        data_path_to_save_groups=path,
    )
    adapter = Adapter(cluster, cluster.folder / "process-tasks.log", argv)
    await adapter.start()
    assert await adapter.process.wait() == 0, adapter.process.output
    manifest = await read_manifest(cluster.open_journal(), "processed-tasks")
    assert manifest.environment_config["path"] == str(FOLDERS / "hello-file")
    (group,) = lines(path)
    assert len(group["tokens"]) == GROUP_SIZE
    ((_, scored),) = await scored_groups(cluster.open_journal(), "processed-tasks")
    assert scored.item["id"] == "hello-file" and "digest" in scored.item


@pytest.mark.slow
async def test_an_evaluation_of_a_held_out_set(cluster: Cluster, embedded_model: EmbeddedModelServer) -> None:
    folder = cluster.folder / "evaluation"
    argv = command(
        cluster,
        "evaluate",
        "evaluated",
        embedded_model.url,
        evaluation_config='{"seed": 7}',
        evaluation_groups=5,
        evaluation_group_size=2,
        data_dir_to_save_evals=folder,
    )
    adapter = Adapter(cluster, cluster.folder / "evaluate.log", argv)
    await adapter.start()
    assert await adapter.process.wait() == 0, adapter.process.output
    metrics = json.loads((folder / "metrics.json").read_text())["results"]["all"]
    assert metrics["eval/groups"] == 5
    assert 0 <= metrics["eval/pass@1"] <= metrics["eval/pass@2"] <= 1
    assert metrics["eval/mean_ci95_low"] <= metrics["eval/mean"] <= metrics["eval/mean_ci95_high"]
    assert any(name.startswith("eval/reward of ") for name in metrics)
    assert "a-secret-key" not in (folder / "evaluate_config.yaml").read_text()
    assert len(lines(folder / "samples.jsonl")) == 5


@pytest.mark.slow
async def test_a_misspelt_flag_is_one_line(cluster: Cluster) -> None:
    argv = command(cluster, "serve", "misspelt", "http://127.0.0.1:1", environment="file_tsks")
    adapter = Adapter(cluster, cluster.folder / "misspelt.log", argv)
    await adapter.start()
    assert await adapter.process.wait() == 2
    assert "unknown environment 'file_tsks'" in adapter.process.last_words
