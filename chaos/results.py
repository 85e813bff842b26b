"""The results of cells, and the counts in them."""

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from chaos.plays import Play
from clotho.frozen_model import FrozenModel
from clotho.plugins.demo.provider import Bill

Result = TypeVar("Result", bound="CellResult")


class Run(FrozenModel):
    """The rewards and commands of a whole run, which its user keeps."""

    rewards: dict[str, float]
    """By group and place in it."""
    marks: dict[str, dict[str, int]]
    """By group and place: call -> how often its command ran in the workspace that was judged.

    Of a child that its parent's transcript leads to: what its last message says that it did.
    """
    most_losses: int = 0
    """How many sandboxes the rollout lost that lost most."""
    turns: int | None = None
    """How many turns all rollouts have; None where it doesn't matter."""

    @property
    def calls(self) -> int:
        return sum(len(marks) for marks in self.marks.values())


class CellResult(Play):
    lost: int = 0
    """Rollouts without a reward, and commands without an effect."""
    bill: Bill = Bill()
    repaid_limit: int = 0
    """Answers that may be paid for twice: where a process was frozen for so long that it was taken for gone."""
    rerun: int = 0
    rewards_changed: int = 0
    further_turns: int = 0
    """Turns beyond those of the undisturbed run: a call that was made again under another name."""
    to_reaper: int = 0
    """Sandboxes that were left for the reaper, and gone after its pass."""
    recovery_limit: float | None = None
    """Seconds from the end of the fault within which the rollout has its next entry in the journal."""
    losses: int = 0
    """Sandboxes that a rollout lost, the one that lost most."""
    losses_limit: int | None = None
    restarts: int = 0
    """How often somebody had to start the run again by name."""
    unexpected_exits: int = 0
    """Workers that ended by themselves."""
    struck_regular: bool = False
    """Whether a step that was to be struck where it is local had gone on as a regular activity by then."""

    @property
    def targets(self) -> Mapping[str, object]:
        too_many = self.losses_limit is not None and self.losses > self.losses_limit
        late = self.recovery is None or (self.recovery > (self.recovery_limit or float("inf")))
        when = "never went on" if self.recovery is None else f"late: {self.recovery:g} s"
        return {
            f"lost {self.lost}": self.lost,
            f"repaid {self.bill.repaid}": self.bill.repaid > self.repaid_limit,
            f"re-run {self.rerun}": self.rerun,
            f"rewards changed {self.rewards_changed}": self.rewards_changed,
            f"{self.further_turns} further turns": self.further_turns,
            f"orphans {len(self.orphans)}": self.orphans,
            when: late,
            f"{self.losses} sandboxes of a rollout lost": too_many,
            f"{self.unexpected_exits} workers ended by themselves": self.unexpected_exits,
        }

    @property
    def counts(self) -> Mapping[str, int]:
        return {
            "lost": self.lost,
            "repaid": self.bill.repaid,
            "re-run": self.rerun,
            "rewards changed": self.rewards_changed,
            "orphans": len(self.orphans),
            "answered into a dead process": self.bill.died,
            "to somebody who hung up on purpose": self.bill.hung_up,
        }

    @property
    def footnotes(self) -> list[str]:
        notes = ["¹"] if self.bill.died else []
        notes += ["⁴"] if self.bill.hung_up else []
        notes += [f"²({self.restarts})"] if self.restarts else []
        notes += [f"³({self.to_reaper})"] if self.to_reaper else []
        notes += [f"⁷({self.bill.repaid})"] if self.bill.repaid else []
        notes += ["⁶"] if self.struck_regular else []
        return notes


def compare(result: Result, run: Run, undisturbed: Run) -> Result:
    places = undisturbed.rewards.keys()
    unscored = len(places - run.rewards.keys())
    changed = sum(run.rewards[place] != undisturbed.rewards[place] for place in run.rewards)
    lost = rerun = 0
    for place in run.marks.keys() | undisturbed.marks.keys():
        ran, should = Counter(run.marks.get(place)), Counter(undisturbed.marks.get(place))
        lost += (should - ran).total()
        rerun += (ran - should).total()
    counts = {"lost": unscored + lost, "rerun": rerun, "rewards_changed": changed}
    if undisturbed.turns is not None and run.turns is not None:
        counts["further_turns"] = max(0, run.turns - undisturbed.turns)
    return result.model_copy(update={**counts, "losses": run.most_losses})
