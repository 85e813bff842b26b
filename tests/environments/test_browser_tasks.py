"""browser_tasks, played by a scripted model to their rewards."""

import json
import re

import pytest

from clotho.plugins.browser.launch import lacking
from clotho.runs.groups import scored_groups
from clotho.testing import Script, ScriptedCall, ScriptedModel, ScriptedTurn, serving
from clotho.testing.script import Conversation, Question
from environments.browser_tasks import TASKS
from tests.cluster import Cluster

pytestmark = pytest.mark.skipif(lacking() is not None, reason=str(lacking()))

ADA = (("Full name", "Ada Lovelace"), ("Street", "12 Crank Street"), ("City", "London"))
STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "blue linen": (
        *(("", "goods/linen-blue"), ("Number", "2"), ("Add to cart",), ("Check out",)),
        *(*ADA, ("Shipping", "express"), ("Order",)),
    ),
    "cheapest": (
        *(("", ""), ("White wool yarn",), ("Number", "3"), ("Add to cart",), ("Check out",)),
        *(*ADA, ("Order",)),
    ),
    "scissors": (
        *(
            ("", "cart"),
            ("Remove Tailor's scissors",),
            ("", "goods/spindle"),
            ("Number", "1"),
            ("Add to cart",),
        ),
    ),
    "message": (
        *(("", "contact"), ("E-mail", "ada@example.org"), ("Topic", "Delivery")),
        *(("Message", "Order 1042 never arrived."), ("Send message",)),
    ),
    "newsletter": (
        *(("", "news"), ("E-mail", "ada@example.org"), ("How often", "weekly")),
        *(("Send me offers, too",), ("Subscribe",)),
    ),
}
"""The address to open, the element to fill and its text, or the element to click: a snapshot comes before each."""


def policy(question: Question) -> ScriptedTurn:
    """Sibling 0 takes every step, sibling 1 leaves the last one out."""
    [steps] = [steps for match, steps in STEPS.items() if match in question.prompt]
    number, looks = divmod(question.turn, 2)
    if number >= len(steps) - question.sibling:
        return ScriptedTurn(content="Done.")
    step = steps[number]
    if step[0] == "":
        arguments = {"url": f"http://shop.test/{step[1]}"}
        return call("browser_navigate", **arguments)
    if not looks:
        return call("browser_snapshot")
    shown = str(json.loads(str(question.messages[-1].content))["snapshot"])
    [ref] = [
        found[1]
        for line in shown.splitlines()
        if re.search(rf'- (textbox|spinbutton|combobox|button|link|checkbox) "{re.escape(step[0])}"', line)
        and (found := re.search(r"\[ref=(\w+)\]", line))
    ]
    if len(step) == 2:
        return call("browser_type", ref=ref, text=step[1])
    return call("browser_click", ref=ref)


def call(name: str, **arguments: str) -> ScriptedTurn:
    return ScriptedTurn(calls=(ScriptedCall(name=name, arguments={**arguments}),))


@pytest.mark.slow
async def test_the_shop_is_rewarded_by_its_state(cluster: Cluster) -> None:
    script = Script(conversations=(Conversation(variants=((ScriptedTurn(),),)),))
    async with serving(ScriptedModel(script, policy)) as url:
        handle = await cluster.start(
            "browser-tasks", url, environment="browser_tasks", model="scripted", groups=10, group_size=2
        )
        progress = await handle.result()
    assert progress.groups == len(TASKS)
    scores = [
        [sibling.score for sibling in entry.siblings]
        for _, entry in await scored_groups(cluster.open_journal(), "browser-tasks")
    ]
    assert scores == [[1.0, 0.0]] * len(TASKS)
