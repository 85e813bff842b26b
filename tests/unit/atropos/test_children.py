"""Rollouts with children in delivered groups: whose tokens are trained on, and what disturbed them."""

from pathlib import Path

import pytest

from clotho.identifiers.keys import call_key, end_key, manifest_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.atropos.scored import branch_groups_of
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import EndEntry, RolloutSummary
from clotho.run_settings import RunSettings
from clotho.runs.disturbances import Disturbance
from clotho.runs.request import run_manifest
from clotho.training.siblings import Sibling, read_siblings
from tests.unit.atropos.test_metrics import GROUP, summary, transcript

COMPLETED = Ending(outcome=Outcome.COMPLETED)
CHILD = f"{GROUP}/r0~0000-00"


def siblings(attributed: bool) -> list[Sibling]:
    """Two rollouts, the first of which has delegated a task."""
    lost = (Fidelity.DIVERGED,)
    child = summary(0, COMPLETED, rollout=CHILD, parent=f"{GROUP}/r0", losses=lost)
    family = [(child, transcript(None, ()))]
    return [
        Sibling.of(summary(0, COMPLETED), transcript(None, ()), (), family, attributed),
        Sibling.of(summary(1, COMPLETED), transcript(None, ())),
    ]


@pytest.mark.parametrize(
    ("attributed", "sampled_by"),
    [
        (False, [[f"{GROUP}/r0", f"{GROUP}/r1"]]),
        (True, [[f"{GROUP}/r0", f"{GROUP}/r1"], [CHILD, None]]),
    ],
)
def test_a_childs_tokens_are_trained_on_where_they_are_attributed(
    attributed: bool, sampled_by: list[list[str | None]]
) -> None:
    groups = branch_groups_of(GROUP, siblings(attributed), 2)
    assert [group.generation_params["sampled_by"] for group in groups] == sampled_by
    for group in groups:
        assert group.scores == (0.0, 1.0)
        assert group.generation_params["children"] == [[CHILD], []]
        assert group.generation_params["rollouts"] == [f"{GROUP}/r0", f"{GROUP}/r1"]


def test_what_disturbed_a_child_disturbed_the_rollout() -> None:
    disturbed, other = siblings(attributed=False)
    assert disturbed.disturbances == (Disturbance.SANDBOX_LOST, Disturbance.DIVERGED)
    assert other.disturbances == ()


async def write(journal: Journal, end: RolloutSummary, child: str | None) -> None:
    """A rollout of one turn, whose call was made, or delegated a task to `child`."""
    did = transcript(None, ())
    (step,) = did.steps
    await journal.write(prompt_key(end.rollout), did.prompt)
    await journal.write(turn_key(end.rollout, 0), step.turn)
    made = step.calls[0].model_copy(update={"child": child})
    await journal.write(call_key(end.rollout, "0000-00"), made)
    await journal.write(end_key(end.rollout), EndEntry(summary=end))


@pytest.mark.parametrize("attributed", [False, True])
async def test_a_groups_rollouts_are_read_with_their_children(tmp_path: Path, attributed: bool) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    settings = RunSettings(delegation={"attributed": attributed})
    await journal.write(manifest_key("run"), run_manifest("file_tasks", "run", "m", settings=settings))
    ends = [summary(0, COMPLETED, turns=1), summary(0, COMPLETED, rollout=CHILD, turns=1)]
    await write(journal, ends[0], CHILD)
    await write(journal, ends[1], None)
    entry = GroupEntry(item={}, toolsets=(), siblings=(ends[0],))
    (sibling,) = await read_siblings(journal, entry)
    assert sibling.children == (ends[1],)
    assert [branch.rollout for branch in sibling.branches] == [ends[0].rollout, CHILD][: 1 + attributed]
