"""The tools of the how-to page, as an installed package's, in a real rollout that loses its sandbox."""

import json
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.keys import call_key
from clotho.plugin import plugins
from clotho.rollouts.call import CallEntry
from clotho.rollouts.lease import Fidelity
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster, cluster_in
from tests.support import start
from tests.workflows.losses import WAITS, lose_while_waiting
from tests.workflows.scripts import run, say

PACKAGE = Path(__file__).parents[2] / "examples" / "how_to" / "line_tools"
ROLLOUT = "lines/g000000/r0"


def installed(folder: Path) -> Path:
    """A folder for the path that has what pip would install of the package."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    [(group, points)] = project["entry-points"].items()
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    (folder / "line_tools.py").write_text((PACKAGE / "line_tools.py").read_text())
    return folder


@pytest.fixture
async def with_tools(temporal: TemporalServer, folder: Path) -> AsyncIterator[Cluster]:
    packages = installed(folder / "line-tools")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(packages)
        plugins.cache_clear()
        async with cluster_in(temporal, folder / "lines", "lines") as cluster:
            await cluster.start_worker(PYTHONPATH=f"{packages}:{Path.cwd()}")
            yield cluster
    sys.modules.pop("line_tools", None)
    plugins.cache_clear()


def call(name: str, path: str) -> ScriptedCall:
    return ScriptedCall(name=name, arguments={"path": path})


async def test_calls_run_and_are_replayed_in_a_new_sandbox(with_tools: Cluster) -> None:
    turns = (
        run("cd /tmp; printf 'b\\nc\\na\\n' > letters"),
        ScriptedTurn(
            calls=(
                call("sort_lines", "letters"),
                call("count_lines", "letters"),
                call("count_lines", "nothing"),
                ScriptedCall(name="terminal", arguments={"command": WAITS}),
            )
        ),
        run("xargs < letters"),
        say("Done."),
    )
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        toolsets = {"enabled_toolsets": ["terminal", "lines"]}
        handle = await start(with_tools, "lines", url, overrides=toolsets)
        await lose_while_waiting(with_tools, ROLLOUT)
        await handle.result()
    end = await read_end(with_tools.open_journal(), ROLLOUT)
    assert end is not None and end.summary.losses == (Fidelity.REPLAYED,)
    results = [await result(with_tools, call) for call in ("0001-00", "0001-01", "0001-02", "0002-00")]
    assert results[:3] == [{"sorted": True}, {"lines": 3}, {"error": "nothing: not_found"}]
    assert results[3]["output"] == "a b c\n"


async def result(cluster: Cluster, call: str) -> dict[str, object]:
    entry = await cluster.open_journal().read_required(call_key(ROLLOUT, call), CallEntry)
    found: dict[str, object] = json.loads(entry.content)
    return found
