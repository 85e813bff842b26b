"""`clotho eval`: held-out items rolled out by real workers, figures from a store, and two runs compared."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyarrow import parquet

from clotho.environment.environment import checked_metrics
from clotho.errors import EnvironmentFailed
from clotho.identifiers.ids import group_id
from clotho.identifiers.keys import attempt_prefix
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.group import AttemptEntry, SiblingFailure
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho, clotho_many
from tests.cluster import Cluster
from tests.viewer.stored import write_group, write_run

HELD_OUT = "tests.environments.held_out:HeldOut"


def scoring(match: str, *scores: float) -> Conversation:
    """Each sibling writes its own score."""

    def turns(score: float) -> tuple[ScriptedTurn, ...]:
        call = ScriptedCall(name="terminal", arguments={"command": f"echo -n {score} > /work/score"})
        return ScriptedTurn(calls=(call,)), ScriptedTurn(content="Done.")

    return Conversation(match=match, variants=tuple(map(turns, scores)))


async def test_held_out_items_are_rolled_out_and_their_figures_told(cluster: Cluster, tmp_path: Path) -> None:
    script = Script(conversations=(scoring("task 102", 0.0, 0.0), scoring("task 10", 1.0, 0.0)))
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    async with serving(ScriptedModel(script)) as url:
        order = ("--run", "held-out-cli", "--model", url, "--groups", "5", "--group-size", "2", "-o")
        done = await clotho("eval", HELD_OUT, *order, tmp_path / "figures.json", *place)
    assert (done.status, done.error) == (0, "")
    assert "5 of 5 items scored, 10 rollouts; 10 completed" in done.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["scored"], figures["failed"], figures["reward"]["mean"]) == (5, {}, 0.4)
    assert {k: each["mean"] for k, each in figures["pass_at"].items()} == {"1": 0.4, "2": 0.8}
    assert {k: each["mean"] for k, each in figures["pass_all"].items()} == {"2": 0.0}
    assert figures["own"] == {"first number": 100.0, "turns in all": 20.0}
    assert "turns in all" in done.output
    log, job = tmp_path / "evaluated.eval", tmp_path / "job"
    export = ("export", "held-out-cli", "--store", str(cluster.store), "--format")
    exported = await clotho_many(
        {
            "without": (*export, "inspect"),
            "inspect": (*export, "inspect", "--output", str(log)),
            "harbor": (*export, "harbor", "--output", str(job)),
            "again": (*export, "harbor", "--output", str(job)),
            "rows": (*export, "messages", "--output", "rows.parquet"),
            "no rows": (*export, "sharegpt", "--output", "rows.parquet"),
        },
        tmp_path,
    )
    assert "give --output" in exported["without"].complaint
    assert exported["again"].complaint == f"clotho: {job} exists: give the path of a new folder"
    assert {exported[name].error for name in ("inspect", "harbor")} == {
        f"10 rollouts in {log}\n",
        f"10 rollouts in {job}\n",
    }
    assert "--format sharegpt has neither" in exported["no rows"].complaint
    assert exported["rows"].error == "10 lines in rows.parquet\n"
    check_rows(tmp_path / "rows.parquet")
    check_log(log)
    check_job(job)


def check_rows(path: Path) -> None:
    rows = parquet.read_table(path).to_pylist()
    assert [row["reward"] for row in rows[:3]] == [1.0, 0.0, 1.0]
    assert json.loads(rows[0]["item"]) == {"number": 100}
    assert [each["role"] for each in rows[0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    [call] = rows[0]["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": "echo -n 1.0 > /work/score"}
    assert rows[0]["messages"][-1]["content"] == "Done."


def check_log(log: Path) -> None:
    with ZipFile(log) as opened:
        header, summaries = (json.loads(opened.read(f"{name}.json")) for name in ("header", "summaries"))
        samples = [json.loads(opened.read(name)) for name in opened.namelist() if "samples/" in name]
    assert (header["status"], header["results"]["completed_samples"]) == ("success", 10)
    [score] = header["results"]["scores"]
    assert {name: each["value"] for name, each in score["metrics"].items()} == {
        "mean": 0.4,
        "pass@1": 0.4,
        "pass@2": 0.8,
        "pass^2": 0.0,
    }
    assert [(each["id"], each["epoch"]) for each in summaries[:3]] == [
        ("g000000", 1),
        ("g000000", 2),
        ("g000001", 1),
    ]
    assert summaries[0]["input"] == "task 100"
    assert [each["role"] for each in samples[0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert samples[0]["messages"][1]["tool_calls"][0]["arguments"] == {"command": "echo -n 1.0 > /work/score"}
    assert samples[0]["scores"]["reward"]["value"] == 1.0


def check_job(job: Path) -> None:
    result = json.loads((job / "result.json").read_text())
    [figures] = result["stats"]["evals"].values()
    assert (result["n_total_trials"], result["stats"]["n_pending_trials"]) == (10, 0)
    assert (figures["metrics"], figures["pass_at_k"]) == ([{"mean": 0.4}], {"1": 0.4, "2": 0.8})
    assert len(list(job.glob("*/config.json"))) == 10
    trial = job / "g000000__1"
    assert json.loads((trial / "verifier" / "reward.json").read_text()) == {"reward": 1.0}
    assert (trial / "verifier" / "test-stdout.txt").read_text() == "2 turns"
    steps = json.loads((trial / "agent" / "trajectory.json").read_text())["steps"]
    assert [(each["step_id"], each["source"]) for each in steps] == [(1, "user"), (2, "agent"), (3, "agent")]
    [result] = steps[1]["observation"]["results"]
    assert result["source_call_id"] == steps[1]["tool_calls"][0]["tool_call_id"]


async def write_runs(store: Path) -> None:
    """`before` and `after`, of which each has an item that the other lacks; one rollout of `after` has failed."""
    journal = Journal(FilesystemStore(store))
    await write_run(journal, "before", 9)
    await write_run(journal, "after", 9)
    for item in range(8):
        await write_group(journal, "before", item, 0.0, float(item >= 6))
        if item:
            await write_group(journal, "after", item, 1.0, float(item % 2))
    await write_group(journal, "after", 8, 1.0, 1.0)
    failed = group_id("after", 0)
    failure = SiblingFailure(workflow=f"{failed}/r1", kind="ModelUnavailable", reason="no answer")
    await journal.write(f"{attempt_prefix(failed)}000", AttemptEntry(siblings=(), failures=(failure,)))


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands about runs that were written by hand."""
    return tmp_path_factory.mktemp("evaluations")


@pytest.fixture(scope="module")
async def said(evaluations: Path) -> dict[str, Finished]:
    """The output of these commands."""
    await write_runs(evaluations / "store")
    place = ("--store", str(evaluations / "store"))
    return await clotho_many(
        {
            "show": ("eval", "show", "after", "-o", "show.json", *place),
            "compare": ("eval", "compare", "before", "after", "-o", "compare.json", *place),
            "same": ("eval", "compare", "before", "before", *place),
            "unknown": ("eval", "show", "no-such-run", *place),
            "environment": ("eval", "no_such_environment", "--run", "x", *place),
            "nowhere": ("eval", "compare", "before", "after", "-o", "/proc/nowhere/x", *place),
        },
        evaluations,
    )


async def test_a_failed_rollout_is_counted_and_in_no_figure(
    said: dict[str, Finished], evaluations: Path
) -> None:
    figures = json.loads((evaluations / "show.json").read_text())
    assert (figures["items"], figures["scored"], figures["rollouts"]) == (9, 8, 16)
    assert figures["failed"] == {"ModelUnavailable": 1}
    assert figures["reward"]["mean"] == 6.5 / 8
    assert said["show"].status == 1
    assert "1 of 9 items have no score, and are in no figure; rollouts that failed: 1 ModelUnavailable" in (
        said["show"].error
    )


async def test_runs_are_compared_on_the_items_that_both_have(
    said: dict[str, Finished], evaluations: Path
) -> None:
    found = json.loads((evaluations / "compare.json").read_text())
    assert (found["items"], found["only_a"], found["only_b"], found["settings"]) == (7, 1, 1, [])
    assert found["reward"] == found["passed"]
    assert found["reward"]["difference"]["mean"] == pytest.approx(4.5 / 7)
    assert found["reward"]["difference"]["low"] > 0.2
    assert (found["reward"]["better"], found["reward"]["worse"]) == (6, 0)
    assert found["reward"]["sign_test"] == 2 / 2**6
    assert "p = 0.0312" in said["compare"].output
    assert "7 items in common; 1 only in before, 1 only in after" in said["compare"].output


async def test_a_run_is_no_better_than_itself(said: dict[str, Finished]) -> None:
    assert "not told by these items" in said["same"].output
    assert "p = 1" in said["same"].output


REFUSED = {
    "unknown": "there is no run 'no-such-run'",
    "environment": "unknown environment 'no_such_environment'",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refusals_are_one_line(said: dict[str, Finished], name: str) -> None:
    assert said[name].status == 1
    assert REFUSED[name] in said[name].complaint


async def test_a_file_that_cant_be_written_is_named(said: dict[str, Finished]) -> None:
    assert said["nowhere"].error == "clotho: /proc/nowhere can't be written: No such file or directory\n"


@pytest.mark.parametrize("returned", [None, {"a": "b"}, {"a": float("nan")}])
def test_metrics_are_finite_numbers(returned: object) -> None:
    with pytest.raises(EnvironmentFailed, match="evaluate returned"):
        checked_metrics(returned)
