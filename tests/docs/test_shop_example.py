"""The tools of the how-to page: played by hand, and in a rollout whose worker dies in the middle of calls."""

import json

import pytest

from clotho.identifiers.keys import call_key
from clotho.rollouts.call import CallEntry
from clotho.runs.rollouts import read_end
from clotho.testing import ScriptedCall, sandboxed_context
from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from examples.how_to.shop import Shop
from tests.cluster import Cluster
from tests.workflows.scripts import say

ROLLOUT = "shop/g000000/r0"


def put(product: str, number: int) -> ScriptedCall:
    return ScriptedCall(name="put", arguments={"product": product, "number": number})


CHECK_OUT = ScriptedCall(name="check_out", arguments={})
PRICE = ScriptedCall(name="price", arguments={"product": "apple"})


def test_a_list_is_bought() -> None:
    with sandboxed_context(Shop) as task:
        played = task.play(PRICE, put("apple", 3), put("milk", 1), put("cheese", 1), CHECK_OUT)
        shown = [message["content"] for message in played.messages if message["role"] == "tool"]
        assert shown[:3] == ['{"result": 2}', '{"apple": 3}', '{"apple": 3, "milk": 1}']
        assert "must be one of apple, bread, milk" in str(shown[3]) and shown[4] == "Paid 7."
        assert len(played.tool_errors) == 1
        assert task.reward().score == 1.0


@pytest.mark.slow
async def test_calls_whose_worker_died_are_repeated_as_declared(private_cluster: Cluster) -> None:
    """The worker dies twice, each time between a call and its journal entry."""
    cluster, calls = private_cluster, (put("apple", 3), put("milk", 1), CHECK_OUT)
    turns = (*(ScriptedTurn(calls=(call,)) for call in calls), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        worker = await cluster.start_worker(CLOTHO_FAIL=f"call.made[{call_key(ROLLOUT, '0001-00')}]:kill")
        handle = await cluster.start("shop", url, environment="examples.how_to.shop:Shop")
        await worker.wait()
        worker = await cluster.start_worker(CLOTHO_FAIL=f"call.made[{call_key(ROLLOUT, '0002-00')}]:kill")
        await worker.wait()
        await cluster.start_worker()
        await handle.result()
    journal = cluster.open_journal()
    put_again, paid = [
        json.loads((await journal.read_required(call_key(ROLLOUT, f"{turn:04}-00"), CallEntry)).content)
        for turn in (1, 2)
    ]
    assert put_again == {"apple": 3, "milk": 1}
    assert "it wasn't made again" in paid["error"]
    end = await read_end(journal, ROLLOUT)
    assert end is not None and end.summary.score == 1.0, "paid once"
