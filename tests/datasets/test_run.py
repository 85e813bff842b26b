"""A run over the rows of a dataset."""

import json
from pathlib import Path

from clotho.runs.groups import scored_groups
from clotho.testing.script import Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import start
from tests.workflows.scripts import scoring


async def test_a_run_rolls_out_the_rows_that_its_dataset_has(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(json.dumps({"number": number, "even": number % 2 == 0}) + "\n" for number in range(6))
    )
    dataset = {"source": str(file), "filters": {"even": True}, "shuffle": 2}
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        handle = await start(cluster, "rows", url, groups=10, overrides={"dataset": dataset})
        progress = await handle.result()
    assert (progress.groups, progress.scored) == (3, 3)
    entries = await scored_groups(cluster.open_journal(), "rows")
    assert sorted(str(entry.item["number"]) for _, entry in entries) == ["0", "2", "4"]
