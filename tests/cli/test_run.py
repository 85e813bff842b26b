"""`clotho run` and what shows its results, on real workers."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.rollouts.campaign import CampaignProgress
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import CLOTHO, Finished, Terminal, clotho, clotho_many
from tests.cli.held import held, let_go_until_the_end
from tests.cluster import Cluster
from tests.support import ONE_FILE, PATIENCE_SECONDS, eventually

HOSTILE = "Done. [bold]loud[/] :smile: \x1b[31mred\x1b]0;title\x07 \u202etxet"
HARMLESS = "Done. [bold]loud[/] :smile: ␛[31mred␛]0;title␇ \ufffdtxet"


def scoring(*scores: float) -> Script:
    def turns(score: float) -> tuple[ScriptedTurn, ...]:
        call = ScriptedCall(name="terminal", arguments={"command": f"echo -n {score} > /work/score"})
        return ScriptedTurn(calls=(call,), reasoning="Hm."), ScriptedTurn(content=HOSTILE)

    return Script(conversations=(Conversation(variants=tuple(turns(score) for score in scores)),))


def place(cluster: Cluster) -> tuple[str, ...]:
    return "--store", str(cluster.store), "--temporal", cluster.address


@pytest.fixture(scope="module")
async def finished(cluster: Cluster) -> AsyncIterator[Finished]:
    """`clotho run` without --model-name, followed to its end in a pipe."""
    async with serving(ScriptedModel(scoring(1.0, 0.5))) as url:
        options = ("--model", url, "--groups", "2", "--group-size", "2")
        yield await clotho("run", ONE_FILE, "--run", "whole-cli", *options, *place(cluster))


async def test_a_run_is_linked_followed_and_summed_up(finished: Finished) -> None:
    assert (finished.status, finished.error) == (0, "")
    link = "http://127.0.0.1:8233/namespaces/default/workflows/whole-cli%2F~campaign"
    assert finished.output.splitlines()[0] == f"run whole-cli: {link}"
    assert "│ g000001 │ 1 0.5   │ 2 2   │" in finished.output


REFUSED = {
    "folder": ". can't be written: Is a directory",
    "nowhere": "/proc/nowhere can't be written: No such file or directory",
    "unknown": "there is no run 'no-such-run'",
    "show-unknown": "there is no rollout 'whole-cli/g000000/r9'",
    "show-path": "'../whole-cli/g000000' names nothing",
    "status-unknown": "there is no run 'no-such-run'",
    "changed": "run whole-cli exists with other settings (seed: 0 in the store, 7 now; group_size: 2 in",
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands, with an older export, and a link to it."""
    folder = tmp_path_factory.mktemp("exports")
    (folder / "old.jsonl").write_text("old")
    (folder / "link.jsonl").symlink_to("old.jsonl")
    return folder


@pytest.fixture(scope="module")
async def said(finished: Finished, cluster: Cluster, exports: Path) -> dict[str, Finished]:
    """The commands' output about the finished run."""
    store = place(cluster)[:2]
    export = ("export", "whole-cli", *store)
    return await clotho_many(
        {
            "messages": export,
            "sharegpt": (*export, "--format", "sharegpt", "--output", "link.jsonl"),
            "groups": (*export, "--format", "groups", "--output", "new/groups.jsonl"),
            "device": (*export, "--output", "/dev/null"),
            "folder": (*export, "--output", "."),
            "nowhere": (*export, "--output", "/proc/nowhere/x"),
            "unknown": ("export", "no-such-run", *store),
            "show": ("show", "whole-cli/g000000/r1", *store),
            "show-unknown": ("show", "whole-cli/g000000/r9", *store),
            "show-path": ("show", "../whole-cli/g000000", *store),
            "runs": ("status", *store),
            "status": ("status", "whole-cli", *place(cluster)),
            "status-unknown": ("status", "no-such-run", *store),
            "status-alone": ("status", "whole-cli", *store, "--temporal", "127.0.0.1:9"),
            "changed": (
                *("run", ONE_FILE, "--run", "whole-cli", "--model", "http://127.0.0.1:9/v1"),
                *("--seed", "7", *place(cluster)),
            ),
        },
        exports,
    )


async def test_results_are_exported(said: dict[str, Finished], exports: Path) -> None:
    lines = [json.loads(line) for line in said["messages"].output.splitlines()]
    assert [line["reward"] for line in lines] == [1.0, 0.5, 1.0, 0.5]
    assert lines[0]["messages"][-1]["content"] == HOSTILE
    shared = [json.loads(line) for line in (exports / "old.jsonl").read_text().splitlines()]
    assert (exports / "link.jsonl").is_symlink()
    assert [part["from"] for part in shared[0]["conversations"]] == ["human", "gpt", "tool", "gpt"]
    groups = [json.loads(line) for line in (exports / "new" / "groups.jsonl").read_text().splitlines()]
    assert [group["scores"] for group in groups] == [[1.0, 0.5], [1.0, 0.5]]
    assert said["groups"].error == "2 lines in new/groups.jsonl\n"
    assert Path("/dev/null").is_char_device()
    assert sorted(path.name for path in exports.iterdir() if path.name.startswith(".")) == []


async def test_results_are_shown(said: dict[str, Finished]) -> None:
    shown = said["show"].output
    assert HARMLESS in shown
    assert "\x1b" not in shown
    assert "── reward 0.5 · verified in" in shown
    assert "completed: 2 turns, 1 tool call (0 errors)" in shown

    assert "│ whole-cli" in said["runs"].output
    assert "│ g000001 │ 1 0.5   │" in said["status"].output
    assert "whole-cli%2F~campaign" in said["status"].output
    assert "│ g000001 │ 1 0.5   │" in said["status-alone"].output
    assert "not shown: no Temporal server answers at 127.0.0.1:9" in said["status-alone"].output


async def test_what_is_not_there_is_refused(said: dict[str, Finished]) -> None:
    for name, reason in REFUSED.items():
        assert said[name].status == 1, name
        assert reason in said[name].complaint, name
    assert {answer.status for name, answer in said.items() if name not in REFUSED} == {0}


async def test_a_reader_that_leaves_ends_an_export_quietly(finished: Finished, cluster: Cluster) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [CLOTHO, "export", "whole-cli", *place(cluster)[:2]]
    left = await asyncio.to_thread(subprocess.run, command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert left.stderr == b""
    assert left.returncode == 1


async def test_a_failed_run_says_why(cluster: Cluster, embedded_model: EmbeddedModelServer) -> None:
    url = f"{embedded_model.url}/v1"
    run = ("run", ONE_FILE, "--groups", "1", "--group-size", "1", "--model", url, *place(cluster))
    keyless, unknown = await asyncio.gather(
        clotho(*run, "--run", "keyless", "--api-key-env", "NO_SUCH_KEY", "--model-name", "clotho-tiny"),
        clotho(*run, "--run", "unknown-model", "--model-name", "no-such-model"),
    )
    assert (keyless.status, unknown.status) == (1, 1)
    assert "run keyless failed: InvalidInput: environment variable NO_SUCH_KEY is not set" in keyless.error
    assert "run unknown-model failed: ModelRejected: " in unknown.error
    assert "no-such-model" in unknown.error
    assert "Traceback" not in keyless.error + unknown.error

    detached = await clotho(
        *run, "--run", "detached", "--api-key-env", "NO_SUCH_KEY", "--model-name", "clotho-tiny", "--detach"
    )
    assert detached.status == 0, detached.error

    async def why() -> bool:
        said = await clotho("status", "detached", *place(cluster))
        return "the run failed: InvalidInput: environment variable NO_SUCH_KEY is not set" in said.output

    await eventually(why, "the reason of a run that nobody followed")


@pytest.mark.slow
async def test_ctrl_c_leaves_the_run_going_and_it_can_be_followed_again(cluster: Cluster) -> None:
    turns = (held("echo -n 1 > /work/score"), ScriptedTurn(content="Done."))
    script = Script(conversations=(Conversation(variants=(turns,)),))
    async with serving(ScriptedModel(script)) as url:
        order = ("run", ONE_FILE, "--run", "left", "--model", url, "--groups", "1", "--group-size", "1")
        started = await clotho(*order, *place(cluster), "--detach")
        assert started.status == 0
        assert f"clotho status left --store {cluster.store}" in started.output
        dumb = Terminal(CLOTHO, *order, *place(cluster), term="dumb")
        terminal = Terminal(CLOTHO, *order, *place(cluster))
        try:
            await dumb.until(" 0/1 groups scored")
            await terminal.until("│ 0/1 ")
            terminal.interrupt()
            assert await terminal.ended() == 130
            assert "the run goes on; give the same command to follow it again" in terminal.shown
        finally:
            dumb.close()
            terminal.close()
        shown = await clotho("show", "left/g000000/r0", *place(cluster)[:2])
        assert "not finished" in shown.output
        handle = cluster.client.get_workflow_handle("left/~campaign", result_type=CampaignProgress)
        assert (await let_go_until_the_end(cluster, handle)).scored == 1


@pytest.mark.slow
async def test_a_run_without_workers_says_so(private_cluster: Cluster) -> None:
    cluster = private_cluster
    async with serving(ScriptedModel(scoring(1.0))) as url:
        order = ("run", ONE_FILE, "--run", "waiting", "--model", url, "--groups", "1", "--group-size", "1")
        process = await asyncio.create_subprocess_exec(
            CLOTHO,
            *order,
            *place(cluster),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace},
        )
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            line = "begun"
            async with asyncio.timeout(PATIENCE_SECONDS):
                while line and "no worker serves " not in line:  # where Temporal is slow it says that first
                    line = (await process.stdout.readline()).decode()
            waiting, _, advice = line.partition("no worker serves ")
            assert "waiting" in waiting
            assert {"clotho", "clotho-llm", "clotho-env", "clotho-sandbox"} <= set(
                advice.partition(":")[0].split(", ")
            )
            assert "start `clotho dev`" in advice
            process.terminate()
            assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 130
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
