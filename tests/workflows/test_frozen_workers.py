"""A worker that is frozen in an own tool's call, and goes on after another has taken the call over."""

import os
import signal
from pathlib import Path

import pytest

from clotho.identifiers.keys import call_claims_prefix, call_key
from clotho.rollouts.call import CallEntry
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.environments.outlived_tool import NAME
from tests.support import eventually
from tests.workflows.losses import journalled, made
from tests.workflows.scripts import run, say

AFTERWARDS = "touch /work/after; while [ ! -e /work/end ]; do sleep 0.05; done; echo -n 1 > /work/score"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
async def test_its_later_commands_have_no_effect(private_cluster: Cluster, tmp_path: Path) -> None:
    cluster, rollout, begun = private_cluster, "frozen/g000000/r0", tmp_path / "begun"
    call = ScriptedCall(name="go_on", arguments={"begun": str(begun)})
    turns = (ScriptedTurn(calls=(call,)), run(AFTERWARDS), say("Done."))
    journal, claims = cluster.open_journal(), call_claims_prefix(rollout, "0000-00")
    await cluster.start_worker("llm")
    for _ in range(2):
        await cluster.start_worker("workflows,tools")
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        handle = await cluster.start("frozen", url, environment=NAME, group_size=1)
        waiting = await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the tool waiting")
        frozen = parent_of(int(begun.read_text()))
        os.kill(frozen, signal.SIGSTOP)
        try:

            async def taken_over() -> bool:
                return len(await journal.keys(claims)) > 1

            await eventually(taken_over, "another worker at the call")
            waiting.with_name("go").touch()
            await journalled(cluster, call_key(rollout, "0000-00"))
            await eventually(lambda: made(cluster, rollout, 0, "after"), "the agent's next command")
        finally:
            os.kill(frozen, signal.SIGCONT)

        async def tried() -> bool:
            return any((tmp_path / name).exists() for name in ("made", "refused"))

        await eventually(tried, "the frozen tool's next command")
        late = await made(cluster, rollout, 0, "late")
        waiting.with_name("end").touch()
        await handle.result()
    assert late is None
    assert (tmp_path / "refused").read_text()
    entry = await journal.read_required(call_key(rollout, "0000-00"), CallEntry)
    assert entry.content == "done again"
    end = await read_end(journal, rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())
