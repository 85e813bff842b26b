"""Settings of a run, by flag, in clotho.yaml or of the adapter, reach its rollouts and are on record."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.keys import call_key
from clotho.rollouts.call import CallEntry
from clotho.run_settings import RunSettings
from clotho.runs.manifest import read_manifest
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.atropos.adapter import command as adapter_command
from tests.cli.command import Finished, clotho
from tests.cli.command import run as program
from tests.cluster import Cluster, cluster_in
from tests.sandbox.conftest import needs_root
from tests.support import ONE_FILE
from tests.workflows.scripts import run, say

ASKED: dict[str, Any] = {
    "checkpoints": "every_call",
    "checkpoint_mb": 7,
    "terminal_lifetime": 900,
    "acquire": "at_start",
    "keep_diverged": False,
    "parallel_tools": True,
    "on_reward_error": "zero",
    "memory_mb": 64,
    "disk_mb": 40,
    "max_processes": 33,
    "expose_usr_local": True,
    "mounts": {"/opt/agents": "/usr/share"},
    "distribution": {"terminal": 1.0, "web": 0.5},
    "max_result_chars": 4000,
    "max_turn_chars": 9000,
    "preview_chars": 700,
    "result_chars": {"terminal": 3000},
    "redact": ["TOOL_KEY"],
}
HOG = "python3 -c 'x = bytearray(200 << 20)'"
TRIED = (
    run("df --output=size -m /work | tail -1; ulimit -u; test -d /usr/local/bin && ls -d /opt/agents/misc"),
    run(HOG),
    run("printf '%03500d' 1"),
    run("echo the key is hidden-value-1"),
)
"""The commands by which a rollout shows its settings."""
SCRIPT = Script(conversations=(Conversation(variants=((*TRIED, say("Done.")),)),))


@pytest.fixture(scope="module")
async def keyed(temporal: TemporalServer, folder: Path) -> AsyncIterator[Cluster]:
    """A worker that has a key for its tools."""
    async with cluster_in(temporal, folder / "keyed", "keyed") as cluster:
        await cluster.start_worker(TOOL_KEY="hidden-value-1")
        yield cluster


def flags(asked: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in asked.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            found.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            found += [flag, as_text(value)]
    return found


def as_text(value: Any) -> str:
    """The value as flags take it."""
    if isinstance(value, list):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


async def command(
    cluster: Cluster, name: str, url: str, *options: str, folder: Path, **variables: str
) -> Finished:
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    order = ("run", ONE_FILE, "--run", name, "--model", url, "--groups", "1", "--group-size", "1")
    variables["CLOTHO_TEMPORAL__NAMESPACE"] = cluster.client.namespace
    variables["PYTHONPATH"] = str(Path.cwd())
    return await clotho(*order, *options, *place, folder=folder, environment=variables)


async def rolled_out(cluster: Cluster, way: str, url: str, folder: Path) -> None:
    name = f"asked-{way}"
    if way == "flags":
        assert (await command(cluster, name, url, *flags(ASKED), folder=folder)).status == 0
    elif way == "yaml":
        (folder / "clotho.yaml").write_text(yaml.safe_dump({"run": {**ASKED, "memory_mb": 4096}}))
        options = ("--memory-mb", str(ASKED["memory_mb"]))
        assert (await command(cluster, name, url, *options, folder=folder)).status == 0
    else:
        asked = {key: as_text(value) for key, value in ASKED.items()}
        fields: dict[str, Any] = {
            "environment": ONE_FILE,
            "inference": "chat",
            "group_size": 1,
            "total_steps": 1,
            **asked,
        }
        fields["data_path_to_save_groups"] = folder / "groups.jsonl"
        argv = adapter_command(cluster, "process", name, url.removesuffix("/v1"), model="scripted", **fields)
        done = await program(*argv)
        assert done.status == 0, done.error


async def result(cluster: Cluster, way: str, turn: int) -> str:
    groups = [key for key in await cluster.open_journal().keys(f"asked-{way}/") if key.endswith("/scored")]
    rollout = groups[0].replace("/scored", "/r0")
    entry = await cluster.open_journal().read_required(call_key(rollout, f"{turn:04}-00"), CallEntry)
    return entry.content


@needs_root  # who alone has disks and control groups
@pytest.mark.parametrize("way", ["flags", "yaml", "adapter"])
async def test_what_is_asked_of_a_run_is_what_it_gets(keyed: Cluster, tmp_path: Path, way: str) -> None:
    async with serving(ScriptedModel(SCRIPT)) as url:
        await rolled_out(keyed, way, url, tmp_path)
    disk, processes, local = json.loads(await result(keyed, way, 0))["output"].split()
    assert 30 < int(disk) <= 40
    assert (processes, local) == ("33", "/opt/agents/misc")
    assert json.loads(await result(keyed, way, 1))["exit_code"] == 137
    assert "ran out of memory" in await result(keyed, way, 1)
    assert "Preview (first 700 characters)" in await result(keyed, way, 2)
    assert json.loads(await result(keyed, way, 3))["output"].strip() == "the key is [REDACTED]"
    manifest = await read_manifest(keyed.open_journal(), f"asked-{way}")
    assert {name: manifest.settings[name] for name in ASKED} == ASKED
    assert set(manifest.settings) == set(RunSettings.model_fields) - {"image"}  # told with its sandbox
    place = ("--store", str(keyed.store), "--temporal", "127.0.0.1:9")
    shown = (await clotho("status", f"asked-{way}", *place)).output
    assert "memory_mb 64 · disk_mb 40 · max_processes 33" in shown
    assert "limits best_effort" not in shown, "it is so by default"
    whole = (await clotho("status", f"asked-{way}", "--all", *place)).output
    assert "max_processes 33 · limits best_effort" in whole


@pytest.mark.slow
async def test_limits_that_a_host_cannot_keep_fail_the_run_that_requires_them(
    private_cluster: Cluster, tmp_path: Path
) -> None:
    """Without mkfs on its path, this host's worker can't make disks of a size."""
    await private_cluster.start_worker(PATH="/usr/bin:/bin")
    async with serving(ScriptedModel(SCRIPT)) as url:
        done = await command(private_cluster, "bounded", url, "--limits", "required", folder=tmp_path)
    assert done.status == 2, "nothing was sampled"
    assert "this host can't bound disk (limits: required): run tool workers on another" in done.error
    assert "--limits best_effort" in done.error


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--memory-mb", "1"), "--memory-mb: Input should be greater than or equal to 16"),
        (("--limits", "some"), "--limits: Input should be 'required' or 'best_effort'"),
        (("--result-chars", "{"), "--result-chars"),
        (("--distribution", "nope"), "unknown distribution 'nope'; known are balanced, "),
        (("--distribution", '{"termnal": 1}'), "unknown toolset 'termnal'; known are "),
        (("--distribution", '{"terminal": 2}'), "should be less than or equal to 1"),
    ],
)
async def test_what_cannot_be_asked_is_refused(cluster: Cluster, option: tuple[str, str], said: str) -> None:
    done = await command(cluster, "refused", "http://127.0.0.1:9/v1", *option, folder=Path.cwd())
    assert done.status == 1
    assert said in done.complaint
