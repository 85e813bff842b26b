"""A run's scored groups in a file, in any format that is offered: for `clotho export` and the Python API."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.evaluation.figures import figures_of
from clotho.evaluation.results import read_results
from clotho.journal import Journal
from clotho.plugin import Exporter, load, plugins
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import Format, export_run
from clotho.runs.manifest import read_manifest
from clotho.training.export import TokenExport

TOKENS = "tokens"
LINES = {
    "messages": "one rollout per line, in the OpenAI format",
    "sharegpt": "one rollout per line, as from/value pairs",
    "groups": "one group per line, with its item and all of its rollouts",
    TOKENS: "one sequence of tokens per line, with masks, logprobs and the reward",
}
"""Formats that the core writes, and what they are."""


@dataclass(frozen=True)
class Exported:
    number: int
    of: str
    """The unit that was counted: line, row or rollout."""
    notes: Sequence[str] = ()
    """Sentences on what was left out, and why."""


def exporters() -> dict[str, Exporter]:
    """The formats of plugins, by name."""
    return {name: each for plugin in plugins().values() for name, each in plugin.exporters.items()}


async def check_format(journal: Journal, run: str, form: str) -> None:
    """Raise InvalidInput for a format that isn't offered, and for tokens of a run that has none."""
    if form not in (known := [*LINES, *exporters()]):
        raise InvalidInput(f"no format {form!r}: give {', '.join(known)}")
    manifest = await read_manifest(journal, run)
    if form == TOKENS and manifest.rendering is None:
        raise InvalidInput(
            f"{run} has no tokens: it was run in chat mode; start runs with `--inference tokens` for a server "
            "that returns them"
        )


async def export(
    journal: Journal, run: str, form: str, output: Path, exclude: Collection[Disturbance] = ()
) -> Exported:
    """Write the run to `output`, whole or not at all. Raises InvalidInput, also where it can't be written."""
    await check_format(journal, run, form)
    try:
        if form in exporters():
            return await _export_whole(journal, run, form, output, exclude)
        if form == TOKENS:
            rows = TokenExport(journal, run, exclude)
            return Exported(await rows.write(output), "row", left_out_notes(rows))
        return Exported(await export_run(journal, run, Format(form), output, exclude), "line")
    except OSError as error:
        raise InvalidInput(f"{error.filename or output} can't be written: {error.strerror}") from error


async def _export_whole(
    journal: Journal, run: str, form: str, output: Path, exclude: Collection[Disturbance]
) -> Exported:
    results = await read_results(journal, run)
    write = load(exporters()[form].target)
    rollouts = await write(journal, results.manifest, figures_of(results), output, exclude)
    notes = [f"{results.unscored} items have no score, and are left out"] if results.unscored else []
    return Exported(rollouts, "rollout", notes)


def left_out_notes(rows: TokenExport) -> list[str]:
    if not rows.left_out:
        return []
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rows.left_out.items()))
    return [f"groups left out, which can't be trained on: {reasons}"]
