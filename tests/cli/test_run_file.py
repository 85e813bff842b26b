"""A run's options in a YAML file."""

from pathlib import Path

import yaml

from clotho.testing.scripted_model import ScriptedModel, serving
from tests.api.test_runs import scoring
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.support import ONE_FILE

OPTIONS = (
    *(
        "--groups",
        "1",
        "--group-size",
        "1",
        "--temperature",
        "0.5",
        "--checkpoints",
        "off",
        "--parallel-tools",
    ),
    *("--budget", "sampled_tokens=5000", "--set", "max_agent_turns=7"),
)


async def test_a_file_has_what_the_flags_said(cluster: Cluster, tmp_path: Path) -> None:
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    file = tmp_path / "run.yaml"
    async with serving(ScriptedModel(scoring(1.0))) as url:
        flags = ("--run", "by-flags", "--model", url, *OPTIONS, *place)
        saved = await clotho("run", ONE_FILE, *flags, "--save", file)
        assert saved.status == 0, saved.error
        assert yaml.safe_load(file.read_text()) == {
            "environment": ONE_FILE,
            "run": "by-flags",
            "model": url,
            "groups": 1,
            "group_size": 1,
            "temperature": 0.5,
            "checkpoints": "off",
            "parallel_tools": True,
            "budget": "sampled_tokens=5000",
            "set": {"max_agent_turns": 7},
            "store": str(cluster.store),
            "temporal": cluster.address,
        }
        again = await clotho("run", file, "--run", "by-file")
        assert again.status == 0, again.error
    same = await clotho("eval", "compare", "by-flags", "by-file", *place[:2])
    assert "by-flags and by-file came out the same on all 1 items" in same.output
    assert "settings that differ" not in same.output


async def test_a_file_is_refused_by_the_name_at_fault(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    for content, complaint in {
        "run: first\n": "names no environment",
        "environment: file_tasks\nrun: first\ntemprature: 1\n": "no option 'temprature': do you mean temperature?",
        "- a list\n": "must hold names and values",
        "environment: [\n": "run.yaml: while parsing",
    }.items():
        file.write_text(content)
        assert complaint in (await clotho("run", file)).complaint
