"""Tool calls that aren't run as a model wrote them: it reads why, and the rollout's record counts them."""

import json
from pathlib import Path

from clotho.identifiers.ids import call_id
from clotho.identifiers.keys import call_key, turn_key
from clotho.models.messages import CallDefects
from clotho.rollouts.call import CallEntry
from clotho.rollouts.turn import TurnEntry
from clotho.runs.export import Format, export_run
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Question, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import start
from tests.workflows.scripts import say

GOOD = '<tool_call>{"name": "terminal", "arguments": {"command": "echo -n 1 > /work/score"}}</tool_call>'
BAD = "<tool_call>{oops</tool_call>"


async def test_a_malformed_block_beside_a_good_one_stays_in_the_conversation_and_is_counted(
    cluster: Cluster, tmp_path: Path
) -> None:
    shown: list[Question] = []
    turns = (ScriptedTurn(content=f"I try.\n{GOOD}\n{BAD}"), say("Done."))
    script = Script(conversations=(Conversation(variants=(turns,)),))

    def policy(question: Question) -> ScriptedTurn:
        shown.append(question)
        return script.answer(question)

    async with serving(ScriptedModel(script, policy)) as url:
        await (await start(cluster, "malformed", url, group_size=1)).result()
    journal, rollout = cluster.open_journal(), "malformed/g000000/r0"
    end = await read_end(journal, rollout)
    assert end is not None and (end.summary.score, end.summary.defective_calls) == (1.0, 1)
    turn = await journal.read_required(turn_key(rollout, 0), TurnEntry)
    assert turn.defects == CallDefects(malformed=1) and len(turn.tool_calls) == 1
    assert shown[1].messages[-2].content == f"I try.\n{BAD}"
    path = tmp_path / "lines.jsonl"
    await export_run(journal, "malformed", Format.MESSAGES, path)
    assert json.loads(path.read_text())["defective_calls"] == 1


async def test_calls_after_as_many_as_a_turn_may_have_are_not_run_and_the_model_is_told(
    cluster: Cluster,
) -> None:
    call = ScriptedCall(name="terminal", arguments={"command": "echo -n 1 >> /work/score"})
    turns = (ScriptedTurn(calls=(call,) * 50), say("Done."))
    overrides = {"max_calls_per_turn": 2}
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        await (await start(cluster, "many-calls", url, group_size=1, overrides=overrides)).result()
    journal, rollout = cluster.open_journal(), "many-calls/g000000/r0"
    end = await read_end(journal, rollout)
    assert end is not None
    summary = end.summary
    assert (summary.score, summary.tool_calls, summary.tool_errors) == (11.0, 3, 1)
    assert summary.defective_calls == 48
    refused = await journal.read_required(call_key(rollout, call_id(0, 2)), CallEntry)
    assert "a turn may have 2 tool calls. This call and all after it, 48 in number" in refused.content
    assert refused.lease is None
