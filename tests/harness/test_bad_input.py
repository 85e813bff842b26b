"""Harnesses that ask for the model in wrong ways, and too often: each ends as it should, nothing is paid twice."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from clotho.identifiers.ids import job_key
from clotho.identifiers.keys import agent_key
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import EndEntry
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Fault, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.harness.hostile import MODES
from tests.workflows.scripts import say

ENVIRONMENT = "tests.environments.hostile:Hostile"
AGENT = Agent(kind=AgentKind.PROGRAM, program="command")
COMMAND = ("python3", "/work/hostile.py", "{task_file}")
MOST_TURNS = 12


TOO_LONG = Fault(kind="status", status=400, message="maximum context length is 10 tokens", every=1)


def model(fault: Fault | None = None) -> ScriptedModel:
    said = Conversation(variants=((say("Done."),),))
    faults = () if fault is None else (fault,)
    return ScriptedModel(Script(conversations=(said,), latency=0.2, faults=faults))


@dataclass
class Played:
    """A rollout whose program was of one mode."""

    end: EndEntry
    entry: ProgramEntry | None
    seen: Any
    paid: list[int]
    """How often the model answered each of its turns."""


async def play(
    cluster: Cluster,
    mode: str,
    name: str = "",
    *arguments: str,
    lease: int = 0,
    fault: Fault | None = None,
    **settings: Any,
) -> Played:
    name, scripted = name or f"hostile-{mode.replace('_', '-')}", model(fault)
    rollout = f"{name}/g000000/r0"
    of_harness = {"command": [*COMMAND, *arguments], **settings}
    async with serving(scripted) as url:
        handle = await cluster.start(
            name,
            url,
            environment=ENVIRONMENT,
            agent=AGENT,
            items=({"number": list(MODES).index(mode)},),
            settings=RunSettings(plugins={"harness": of_harness}),
            overrides={"max_agent_turns": MOST_TURNS},
        )
        await handle.result()
    journal = cluster.open_journal()
    end = await read_end(journal, rollout)
    assert end is not None
    entry = await journal.read(agent_key(rollout, lease), ProgramEntry)
    seen = json.loads(entry.output) if entry is not None and entry.output.startswith("{") else None
    return Played(end, entry, seen, list(scripted.calls.requests.values()))


DONE = Ending(outcome=Outcome.COMPLETED)
REFUSED = dict.fromkeys(
    (
        "no HTTP",
        "no end of a header",
        "two lengths",
        "negative length",
        "bad chunks",
        "tiny chunks",
        "no JSON",
    ),
    400,
)
ANSWERS: dict[str, tuple[int, Any]] = {
    "silent": (0, {}),
    "malformed": (
        2,
        {
            **REFUSED,
            "deep JSON": 400,
            "no object": 400,
            "halves of characters": 200,
            "no text": 400,
            "after all": 200,
        },
    ),
    "strange": (
        4,
        {
            **dict.fromkeys(
                ("HEAD", "OPTIONS", "GET", "unknown path", "path of another", "absolute path"), 404
            ),
            **dict.fromkeys(("wrong key", "no key", "key of another start"), 401),
            **dict.fromkeys(("n", "logprobs", "tools of no form", "tools without names"), 400),
            **dict.fromkeys(("odd schema", "hosted tool", "many tools", "image"), 200),
        },
    ),
    "expecting": (2, {"leave": 100, "with leave": 200, "without": 200}),
    "pipelined": (1, {"answers": 1}),
    "crowded": (2, {"behind the crowd": 200, "in the crowd": 64, "beside answered ones": 200}),
    "slow": (1, {"slow": 200}),
    "different": (10, {"answers": 10}),
    "equal": (10, {"answers": 10}),
    "cut": (1, {"cut": 200}),
    "again": (2, {"same": True, "third": True}),
    "deaf": (2, {"beside it": 200}),
    "big": (1, {"big": 0, "some were cut": True, "after": 200}),
    "large": (1, {"large": 200}),
    "forging": (1, {**dict.fromkeys(("fd/0", "fd/1", "mem"), "PermissionError"), "after": 200}),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ANSWERS)
async def test_it_is_answered_as_it_should_be(cluster: Cluster, mode: str) -> None:
    turns, expected = ANSWERS[mode]
    played = await play(cluster, mode)
    assert played.seen == expected, played.entry
    assert played.end.summary.ending == DONE
    assert played.end.summary.turns == turns
    assert played.paid == [1] * turns
    assert played.end.summary.losses == ()


@pytest.mark.slow
async def test_what_it_leaves_behind_gets_no_turns_and_disturbs_no_verifier(cluster: Cluster) -> None:
    played = await play(cluster, "daemon")
    assert (played.seen, played.end.summary.ending, played.end.summary.score) == ({"before": 200}, DONE, 0.0)
    # One more where it was asked for before the sandbox had told of the program's end.
    assert played.end.summary.turns <= 2 and played.paid == [1] * played.end.summary.turns


@pytest.mark.slow
async def test_a_call_in_flight_at_its_end_is_paid_and_counted(cluster: Cluster) -> None:
    played = await play(cluster, "in_flight")
    assert played.end.summary.ending == DONE
    assert played.paid == [1] * played.end.summary.turns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "ending"),
    [
        ("loud", Ending(outcome=Outcome.LIMIT_REACHED, limit="max_output_bytes")),
        ("flooding", Ending(outcome=Outcome.LIMIT_REACHED, limit="max_requested_bytes")),
        ("forever", Ending(outcome=Outcome.LIMIT_REACHED, limit="max_turns")),
        ("dying", Ending(outcome=Outcome.POLICY_KILLED, limit="disrupted")),
        ("killed", Ending(outcome=Outcome.POLICY_KILLED, limit="disrupted")),
    ],
)
async def test_it_is_ended(cluster: Cluster, mode: str, ending: Ending) -> None:
    played = await play(cluster, mode)
    assert played.end.summary.ending == ending
    assert played.paid == [1] * played.end.summary.turns


@pytest.mark.slow
async def test_one_that_fails_by_itself_starts_anew(cluster: Cluster) -> None:
    first = job_key("hostile-own-failure/g000000/r0", "harness", 0)
    played = await play(cluster, "failing", "hostile-own-failure", first, lease=1, own_failures=[7])
    assert played.seen == {"asked": 200}
    assert played.end.summary.ending == DONE and len(played.end.summary.losses) == 1
    assert played.entry is not None and (played.entry.calls, played.entry.matched) == (1, 1)
    assert played.paid == [1]


@pytest.mark.slow
async def test_one_whose_prompts_stay_too_long_is_ended(cluster: Cluster) -> None:
    played = await play(cluster, "forever", "hostile-too-long", fault=TOO_LONG)
    assert played.end.summary.ending == Ending(outcome=Outcome.CONTEXT_OVERFLOW)
    assert len(played.paid) == 2, "what follows isn't asked for"
