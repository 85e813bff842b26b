"""Each plugin can be taken out of the tree: the core goes on without it, and says what isn't there."""

import json
import shutil
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from clotho.plugin import GROUP, plugins
from clotho.processes.child import ChildProcess
from clotho.temporal.states import describe
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, run
from tests.cluster import Cluster
from tests.support import eventually
from tests.test_installed import ENVIRONMENT
from tests.test_project import PLUGINS_THAT_USE_OTHERS, modules
from tests.workflows.scripts import say

ROOT = Path(__file__).parent.parent
PARTS = ("clotho", "workflows", "activities", "environments", "worker.py")
OWN = sorted(path.name for path in (ROOT / "clotho" / "plugins").iterdir() if (path / "__init__.py").exists())
CORE_MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in modules("clotho", "workflows", "activities")
    if ROOT / "clotho" / "plugins" not in path.parents and path.name != "__main__.py"
]
IMPORT_ALL = f"import importlib; [importlib.import_module(name) for name in {CORE_MODULES!r}]"


class Tree:
    """A copy of the project without some plugins, as if it were installed."""

    def __init__(self, folder: Path, without: set[str]) -> None:
        self.folder = folder
        for part in PARTS:
            if (ROOT / part).is_dir():
                # What is compiled holds for the copy, whose files keep their times: compiling takes seconds.
                # Another process may be writing a .pyc.NUMBER, which it renames.
                shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc.*"))
            else:
                shutil.copy(ROOT / part, folder / part)
        for plugin in without:
            shutil.rmtree(folder / "clotho" / "plugins" / plugin)
        points = ConfigParser()
        points[GROUP] = {
            name: f"clotho.plugins.{name}:PLUGIN" for name in plugins() if name in OWN and name not in without
        }
        # Before the installed one on the path, whose entry points it hides.
        metadata = folder / "clotho_rollouts-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: clotho-rollouts\nVersion: 0\n")
        with (metadata / "entry_points.txt").open("w") as file:
            points.write(file)

    async def python(self, *arguments: str | Path) -> Finished:
        done = await run(
            sys.executable, *arguments, folder=self.folder, environment={"PYTHONPATH": str(self.folder)}
        )
        assert done.status == 0, done.error
        return done

    async def clotho(self, *arguments: str | Path) -> Finished:
        return await self.python("-c", "from clotho.cli import main; main()", *arguments)


def with_users(plugin: str) -> set[str]:
    """A plugin, and those that build on it."""
    found = {plugin}
    while further := {user for user, used in PLUGINS_THAT_USE_OTHERS.items() if used & found} - found:
        found |= further
    return found


@pytest.mark.slow
@pytest.mark.parametrize("plugin", OWN)
async def test_the_core_goes_on_without(plugin: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree", with_users(plugin))
    await tree.python("-c", IMPORT_ALL)
    offered = json.loads((await tree.clotho("tools", "--json")).output)
    assert {"terminal", "read_file", "execute_code"} <= {
        tool["name"] for tool in offered["tools"] if tool["missing"] is None
    }
    commands = {command.name for command in plugins()[plugin].commands} if plugin in plugins() else set()
    listed = {
        line.split()[1] for line in (await tree.clotho("--help")).output.splitlines() if line[:2] == "│ "
    }
    assert "run" in listed and not commands & listed


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment, which this process finds too."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "greetings.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(folder)
    return folder


def greeting_model() -> ScriptedModel:
    greet = ScriptedCall(name="terminal", arguments={"command": "echo -n hello > ~/greeting.txt"})
    turns = (ScriptedTurn(calls=(greet,)), say("Done."))
    return ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))


async def start_worker(cluster: Cluster, tree: Tree, tasks: Path) -> ChildProcess:
    path = f"{tree.folder}:{tasks}"
    return await cluster.start_worker(
        under=("env", "-C", str(tree.folder)), PYTHONPATH=path, PYTHONSAFEPATH="1"
    )


@pytest.mark.slow
async def test_a_run_reaches_its_rewards_without_any_plugin(
    private_cluster: Cluster, tmp_path: Path, tasks: Path
) -> None:
    worker = await start_worker(private_cluster, Tree(tmp_path / "tree", set(OWN)), tasks)
    async with serving(greeting_model()) as url:
        handle = await private_cluster.start("without", url, environment="greetings:Greeting")
        progress = await handle.result()
    assert progress.reward_sum == 1.0, worker.output


@pytest.mark.slow
async def test_a_worker_without_a_run_s_plugin_leaves_it_to_one_that_has_it(
    private_cluster: Cluster, tmp_path: Path, tasks: Path
) -> None:
    worker = await start_worker(private_cluster, Tree(tmp_path / "tree", with_users("web")), tasks)

    async def refused() -> bool:
        described = await describe(private_cluster.client, "lacking/g000000")
        pending = described.raw_description.pending_activities if described is not None else ()
        return any(
            "the plugin web of this run isn't installed" in one.last_failure.message for one in pending
        )

    async with serving(greeting_model()) as url:
        settings = {"plugins": {"web": {"provider": "tavily"}}}
        environment = "greetings:Greeting"
        handle = await private_cluster.start("lacking", url, environment=environment, overrides=settings)
        await eventually(refused, "the refusal of the worker without the plugin")
        await worker.kill()
        complete = await start_worker(private_cluster, Tree(tmp_path / "complete", set()), tasks)
        progress = await handle.result()
    assert progress.reward_sum == 1.0, complete.output
