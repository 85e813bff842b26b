"""Tasks that calls delegate: the rollouts that do them, their ends, and what becomes of them with their parents."""

import json
from typing import Any

from clotho.identifiers.rollout_keys import call_key, prompt_key
from clotho.rollouts.call import CallEntry
from clotho.rollouts.outcome import Outcome
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.runs.rollouts import read_end
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.environments.delegating import NAME, delegates, script
from tests.workflows.losses import output
from tests.workflows.scripts import run, say

SCORES = run("echo -n 1 > /work/score")


async def shown(cluster: Cluster, rollout: str, call: str) -> dict[str, Any]:
    """The result of a call, as the model was shown it."""
    entry = await cluster.open_journal().read_required(call_key(rollout, call), CallEntry)
    result: dict[str, Any] = json.loads(entry.content)
    return result


async def ended(cluster: Cluster, rollout: str) -> RolloutSummary:
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None, f"{rollout} has not ended"
    return end.summary


async def test_a_child_does_its_task_in_a_sandbox_of_its_own(cluster: Cluster) -> None:
    turns = (run("echo parent > /work/name"), delegates("look around", context="Start in /work."))
    looks = (run("cat /work/name; echo child > /work/name"), say("There was nothing."))
    model = ScriptedModel(script(*turns, SCORES, run("cat /work/name"), say("Done."), look=looks))
    async with serving(model) as url:
        handle = await cluster.start("delegated", url, environment=NAME)
        await handle.result()
    rollout, child = "delegated/g000000/r0", "delegated/g000000/r0~0001-00"
    assert await shown(cluster, rollout, "0001-00") == {
        "status": "completed",
        "turns": 2,
        "result": "There was nothing.",
    }
    assert "No such file" in await output(cluster, child, "0000-00")
    assert await output(cluster, rollout, "0003-00") == "parent"
    journal = cluster.open_journal()
    prompt = await journal.read_required(prompt_key(child), Prompt)
    assert prompt.delegated is not None and prompt.delegated.parent == rollout
    assert "delegate_task" not in prompt.delegated.tools and "terminal" in prompt.delegated.tools
    assert prompt.messages[-1].content == "look around\n\nContext:\nStart in /work."
    entry = await journal.read_required(call_key(rollout, "0001-00"), CallEntry)
    assert entry.child == child and entry.error is None
    parent, did = await ended(cluster, rollout), await ended(cluster, child)
    assert (parent.score, parent.parent, did.parent) == (1.0, None, rollout)
    assert parent.delegated_tokens == did.sampled_tokens
    assert set(model.calls.requests.values()) == {1}
