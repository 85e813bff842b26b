"""The environment of the how-to page, rolled out as the page says."""

import pytest

from clotho.runs.groups import scored_groups
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.workflows.scripts import say

RIGHT = "import sys\nfor number in sorted(map(int, sys.stdin)): print(number)\n"
HALF = "import sys\nfor number in sorted(set(map(int, sys.stdin))): print(number)\n"


def writes(program: str) -> tuple[ScriptedTurn, ...]:
    call = ScriptedCall(name="write_file", arguments={"path": "sort.py", "content": program})
    return ScriptedTurn(calls=(call,)), say("Done.")


@pytest.mark.slow
async def test_programs_are_judged_by_what_they_print(cluster: Cluster) -> None:
    variants = (writes(RIGHT), writes(HALF), writes("print(open('example.txt').read())"), (say("No."),))
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=variants),)))) as url:
        done = await clotho(
            *("run", "examples.how_to.sorting:Sorting", "--run", "sorting", "--model", url),
            *("--groups", "3", "--set", "tasks=2", *place),
        )
    assert done.status == 0, done.error
    groups = await scored_groups(cluster.open_journal(), "sorting")
    scores = [[round(sibling.score, 2) for sibling in entry.siblings] for _, entry in groups]
    assert scores == [[1.0, 0.67, 0.0, 0.0]] * 2, "the items that --set asks for"
