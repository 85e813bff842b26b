"""A run's finished groups as rows of tokens: lines of JSON, or a Parquet file."""

from collections import Counter
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from clotho.errors import GroupRejected
from clotho.escaping import json_line
from clotho.journal import Journal
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import placed
from clotho.runs.manifest import read_manifest
from clotho.runs.parquet import PARQUET, parquet_file
from clotho.training.rows import TrainingGroup, TrainingRow, training_groups
from clotho.training.siblings import Exclusion


class TokenExport:
    """The rows of a run's finished groups. `left_out` counts, by reason, the groups read so far that have none."""

    def __init__(self, journal: Journal, run: str, exclude: Collection[Disturbance] = ()) -> None:
        self._journal = journal
        self._run = run
        self._exclusion = Exclusion(frozenset(exclude))
        self.left_out: Counter[str] = Counter()

    async def lines(self) -> AsyncIterator[str]:
        """The rows as lines of JSON. Raises InvalidInput for an unknown run."""
        async for group in self.groups():
            for row in _plain(group):
                yield json_line(row) + "\n"

    async def groups(self) -> AsyncIterator[TrainingGroup]:
        """The groups that may be trained on. Raises InvalidInput for an unknown run."""
        await read_manifest(self._journal, self._run)
        async for group in training_groups(self._journal, self._run, exclusion=self._exclusion):
            if isinstance(group, GroupRejected):
                self.left_out[group.reason] += 1
            else:
                yield group

    async def write(self, output: Path) -> int:
        """Write the rows to `output`, a Parquet file if it ends in .parquet; returns their number.

        A file appears whole or not at all. Raises InvalidInput for an unknown run, and where pyarrow is missing.
        """
        rows = 0
        if output.suffix != PARQUET:
            with placed(output) as path, path.open("w", encoding="utf-8") as file:
                async for line in self.lines():
                    file.write(line)
                    rows += 1
            return rows
        with placed(output) as path, parquet_file(path, _schema) as add:
            async for group in self.groups():
                add(_plain(group))
                rows += len(group.rows)
        return rows


def _schema(pyarrow: Any) -> Any:
    text, number, whole, truth = pyarrow.string(), pyarrow.float64(), pyarrow.int32(), pyarrow.bool_()
    version = pyarrow.struct([("version", text), ("start", whole), ("end", whole)])
    types = {
        **dict.fromkeys(("branch", "resumed_turns", "repairs"), whole),
        **dict.fromkeys(("temperature", "reward"), number),
        **dict.fromkeys(("versions_known", "excluded"), truth),
        **dict.fromkeys(("disturbances", "sandbox_losses"), pyarrow.list_(text)),
        "ids": pyarrow.list_(whole),
        "mask": pyarrow.list_(truth),
        "logprobs": pyarrow.list_(number),
        "versions": pyarrow.list_(version),
    }
    # named, not inferred: groups are written one by one, and the first may have only nulls in a column
    return pyarrow.schema([(name, types.get(name, text)) for name in TrainingRow.model_fields])


def _plain(group: TrainingGroup) -> list[dict[str, JsonValue]]:
    return [row.model_dump(mode="json") for row in group.rows]
