"""Rollouts in the formats of Inspect and Harbor: what the runs of other tests don't come to."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from clotho.evaluation.figures import figures_of
from clotho.evaluation.results import read_results
from clotho.identifiers.keys import call_key, prompt_key, reward_key, scored_key, tools_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.plugins.formats.atif import trajectory
from clotho.plugins.formats.harbor_job import write_harbor_job
from clotho.plugins.formats.inspect_log import write_inspect_log
from clotho.plugins.formats.inspect_messages import message_fields
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import GroupEntry, ToolManifest
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.rollouts.run import RunManifest
from clotho.rollouts.transcript import Step, Transcript
from clotho.rollouts.turn import TurnEntry
from clotho.rollouts.verification import RewardEntry
from clotho.runs.export import RecordedRollout
from clotho.runs.request import run_manifest
from tests.viewer.stored import write_run

GROUP, ROLLOUT, CHILD = "told/g000000", "told/g000000/r1", "told/g000000/r1~0000-00"
TOOLS = ToolManifest(toolsets=(), tools=(), unavailable={})
REWARD = RewardEntry(
    score=0.5, breakdown={"a": 1.0, "b": float("nan")}, log="said", lease=None, epoch=0, seconds=0.1
)
ASKED = ChatMessage(role="user", content="Do it.")


def summary(rollout: str, turns: int, parent: str | None = None) -> RolloutSummary:
    ending = Ending(outcome=Outcome.LIMIT_REACHED, limit="max_turns")
    return RolloutSummary(rollout=rollout, ending=ending, score=0.5, turns=turns, parent=parent)


def turn(message: ChatMessage, started: float) -> TurnEntry:
    usage = Usage(prompt_tokens=10, completion_tokens=3, cached_prompt_tokens=4)
    sampled = SampledTurn(
        message=message,
        finish_reason="length",
        usage=usage,
        model="served",
        sampling=Sampling(),
        started=started,
        seconds=1.0,
    )
    return TurnEntry(sampled=sampled)


def calling(*calls: tuple[str, str]) -> ChatMessage:
    """A turn with reasoning, that makes calls with these ids and arguments."""
    made = tuple(
        ToolCall(id=id, function=FunctionCall(name="do", arguments=arguments)) for id, arguments in calls
    )
    return ChatMessage(role="assistant", reasoning_content="Hm.", tool_calls=made)


def result(content: str, child: str | None = None) -> CallEntry:
    return CallEntry(
        tool="do",
        content=content,
        error=None,
        state={},
        lease=None,
        started=101.0,
        seconds=2.0,
        changes=False,
        child=child,
    )


def transcript(*steps: Step) -> Transcript:
    return Transcript(prompt=Prompt(item={"id": "a"}, messages=(ASKED,), seed=0), steps=steps)


DELEGATED = transcript(Step(turn=turn(ChatMessage(role="assistant", content="Did."), 100.5), calls=()))
FIRST = Step(
    turn=turn(calling(("c0", '{"a": 1}'), ("c1", "{")), 100.0), calls=(result("ok", CHILD), result("no"))
)


def recorded(did: Transcript) -> RecordedRollout:
    children = [(summary(CHILD, 1, ROLLOUT), DELEGATED)]
    return RecordedRollout(summary(ROLLOUT, 1), did, REWARD, children, ())


@pytest.fixture
def manifest() -> RunManifest:
    return run_manifest("tests.environments.one_file:OneFile", "told", "model", group_size=2)


def test_a_trajectory_has_calls_results_and_those_who_did_delegated_tasks(manifest: RunManifest) -> None:
    told: Any = trajectory(recorded(transcript(FIRST)), TOOLS, manifest)
    said, acted = told["steps"]
    assert (said["source"], said["message"]) == ("user", "Do it.")
    assert (acted["reasoning_content"], acted["metrics"]["cached_tokens"]) == ("Hm.", 4)
    assert [each["arguments"] for each in acted["tool_calls"]] == [{"a": 1}, {"unparsed": "{"}]
    assert "parse_error" in acted["tool_calls"][1]["extra"]
    first, second = acted["observation"]["results"]
    assert first["subagent_trajectory_ref"] == [{"trajectory_id": CHILD}]
    assert (second["source_call_id"], second["content"]) == ("c1", "no")
    [child] = told["subagent_trajectories"]
    assert (child["trajectory_id"], child["steps"][1]["message"]) == (CHILD, "Did.")
    assert told["extra"]["reward_breakdown"] == {"a": 1.0}


def test_an_agent_that_is_no_model_called_none(manifest: RunManifest) -> None:
    oracle = run_manifest(manifest.environment, "told", "oracle", agent=Agent(kind=AgentKind.ORACLE))
    told: Any = trajectory(recorded(transcript(FIRST)), TOOLS, oracle)
    assert told["steps"][1]["llm_call_count"] == 0
    assert not {"metrics", "reasoning_content"} & told["steps"][1].keys()


def test_parts_of_messages_are_those_of_inspect() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    message = ChatMessage(role="user", content=({"type": "text", "text": "See:"}, picture, {"type": "odd"}))
    assert message_fields(0, message)["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image", "image": "data:image/png;base64,AA"},
        {"type": "text", "text": '{"type": "odd"}'},
    ]
    thought = message_fields(1, calling(("c", "{}")))
    assert thought["content"] == [{"type": "reasoning", "reasoning": "Hm."}]
    assert message_fields(0, ChatMessage(role="developer", content="x"))["role"] == "system"


async def write_told(journal: Journal) -> None:
    """Two items, of which the second has no score."""
    await write_run(journal, "told", 2)
    siblings = []
    for name in ("r0", "r1"):
        rollout = f"{GROUP}/{name}"
        await journal.write(prompt_key(rollout), transcript().prompt)
        await journal.write(turn_key(rollout, 0), turn(calling(("c0", "{}")), 100.0))
        await journal.write(call_key(rollout, "0000-00"), result("ok"))
        await journal.write(reward_key(rollout), REWARD)
        siblings.append(summary(rollout, 1))
    await journal.write(tools_key(GROUP), TOOLS)
    await journal.write(
        scored_key(GROUP), GroupEntry(item={"id": "a"}, toolsets=(), siblings=tuple(siblings))
    )


async def test_items_without_a_score_are_said_and_never_zero(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path / "store"))
    await write_told(journal)
    results = await read_results(journal, "told")
    log, job, figures = tmp_path / "told.eval", tmp_path / "jobs" / "told", figures_of(results)
    assert await write_inspect_log(journal, results.manifest, figures, log) == 2
    assert await write_harbor_job(journal, results.manifest, figures, job) == 2
    with ZipFile(log) as opened:
        header = json.loads(opened.read("header.json"))
        sample = json.loads(opened.read("samples/a-g000000_epoch_2.json"))
    assert (header["status"], header["results"]["total_samples"]) == ("error", 4)
    assert header["results"]["scores"][0]["unscored_samples"] == 2
    assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == 0.5
    assert "1 of 2 items have no score" in header["error"]["message"]
    assert sample["limit"] == {"type": "turn", "limit": 8}
    assert (sample["output"]["choices"][0]["stop_reason"], sample["total_time"]) == ("max_tokens", 3.0)
    told = json.loads((job / "result.json").read_text())
    assert (told["stats"]["n_pending_trials"], told["finished_at"]) == (2, None)
    assert json.loads((job / "a-g000000__2" / "verifier" / "reward.json").read_text()) == {
        "a": 1.0,
        "reward": 0.5,
    }
    assert [each.name for each in job.parent.iterdir()] == ["told"]
