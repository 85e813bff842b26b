"""Tables of `clotho eval`."""

from collections.abc import Iterator

from rich.table import Table

from clotho.cli.terminal import amount, sanitized_text
from clotho.evaluation.comparison import Comparison, Paired
from clotho.evaluation.figures import Figures, Power
from clotho.evaluation.statistics import Estimate, items_needed

INTERVAL = "95 % interval"


def figures_table(figures: Figures) -> Table:
    """Means over items, and their intervals."""
    table = Table("over items", "mean", INTERVAL, title=f"run {figures.run}")
    rows = {} if figures.reward is None else {"reward": figures.reward}
    rows |= {f"pass@{k}": estimate for k, estimate in figures.pass_at.items()}
    rows |= {f"pass^{k}": estimate for k, estimate in figures.pass_all.items()}
    for name, estimate in rows.items():
        table.add_row(name, f"{estimate.mean:.3f}", interval_text(estimate))
    for name, value in figures.own.items():
        table.add_row(sanitized_text(name), f"{value:.3f}", "")
    return table


def comparison_table(comparison: Comparison) -> Table:
    """Both runs' means over the items in common, and their difference."""
    table = Table(
        "over items", comparison.a, comparison.b, "difference", INTERVAL, "better", "worse", "sign test"
    )
    for name, paired in measures(comparison).items():
        table.add_row(
            name,
            f"{paired.a.mean:.3f}",
            f"{paired.b.mean:.3f}",
            f"{paired.difference.mean:+.3f}",
            interval_text(paired.difference, "+.3f"),
            str(paired.better),
            str(paired.worse),
            f"p = {paired.sign_test:.3g}",
        )
    return table


def verdict_text(comparison: Comparison) -> str:
    """The comparison in one sentence."""
    paired, a, b = comparison.reward, comparison.a, comparison.b
    better, worse = paired.better, paired.worse
    counts = f"{b} is better on {amount(better, 'item')} and worse on {worse} of {comparison.items}"
    interval = paired.difference
    if interval.told and interval.low > 0:
        return f"{counts}: its mean reward is higher, by {interval.mean:.3f}"
    if interval.told and interval.high < 0:
        return f"{counts}: its mean reward is lower, by {-interval.mean:.3f}"
    if better == worse == 0:
        return f"{a} and {b} came out the same on all {comparison.items} items"
    if paired.power is None or not interval.mean:
        return f"{counts}: that doesn't tell which is better"
    needed = items_needed(paired.power.deviation, abs(interval.mean))
    return f"{counts}: too few items to be sure; for a difference as seen, {needed:,} would do"


def measures(comparison: Comparison) -> dict[str, Paired]:
    """Rewards and pass@1, once where they are the same."""
    both = {"reward": comparison.reward, "pass@1": comparison.passed}
    return both if comparison.reward != comparison.passed else {"reward": comparison.reward}


def notes_on(told: Figures | Comparison) -> Iterator[str]:
    """Notes below the table, a sentence each."""
    if isinstance(told, Comparison):
        yield f"{told.items} items in common; {told.only_a} only in {told.a}, {told.only_b} only in {told.b}"
        if told.settings:
            yield f"other settings that differ: {', '.join(told.settings)}"
        yield power_text(told.reward.power, "")
        return
    yield f"{told.scored} of {told.items} items scored, {told.rollouts} rollouts; {counted(told.outcomes)}"
    yield f"a rollout has {told.turns:.1f} turns and {told.sampled_tokens:,.0f} sampled tokens in the mean"
    if told.disturbances:
        yield f"disturbed rollouts: {counted(told.disturbances)}"
    yield power_text(told.power, " at most")


def power_text(power: Power | None, bound: str) -> str:
    if power is None:
        return "how many items a comparison needs can't be told: all items came out the same"
    return (
        f"comparing runs on {power.items} items finds a difference of {power.smallest:.3f} in rewards in 4 of 5 "
        f"cases; one of {power.difference:g} takes{bound} {power.needed:,} items"
    )


def interval_text(estimate: Estimate, form: str = ".3f") -> str:
    return f"{estimate.low:{form}} to {estimate.high:{form}}" if estimate.told else "not told by these items"


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
