"""An installation from the wheel, in an empty folder: no checkout is needed for anything."""

import asyncio
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from clotho.embedded.temporal_binary import temporal_binary
from clotho.processes.ports import free_port
from tests.cli.command import gone, run
from tests.support import eventually

ROOT = Path(__file__).parent.parent
ENVIRONMENT = '''"""Write a greeting."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext


class GreetingConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    max_agent_turns: int = 4


class Greeting(Environment):
    config_class = GreetingConfig

    async def setup(self) -> None:
        self.names = iter(("greeting", "hello"))

    async def get_next_item(self) -> Item | None:
        name = next(self.names, None)
        return None if name is None else {"name": name}

    def format_prompt(self, item: Item) -> str:
        return f"Create a file at ~/{item['name']}.txt containing exactly the text: hello"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float(ctx.read_bytes(f"~/{item['name']}.txt") == b"hello")
'''


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh virtual environment with the wheel in it, and that of the plugin of the how-to page."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    packages = (str(ROOT), str(ROOT / "examples" / "plugin"))
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), *packages], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    wheels = map(str, folder.glob("*.whl"))
    subprocess.run(
        [*pip, "--python", str(folder / "venv/bin/python"), "install", "--no-compile", *wheels], check=True
    )
    return folder / "venv/bin"


@pytest.mark.slow
async def test_an_environment_runs_to_its_rewards_without_a_checkout(programs: Path, folder: Path) -> None:
    here = folder / "installed"
    here.mkdir()
    (here / "my_tasks.py").write_text(ENVIRONMENT)
    # A package of the user's with the name of one of the application's must hide nothing.
    (here / "workflows").mkdir()
    (here / "workflows" / "__init__.py").write_text("raise ImportError('the user module was imported')")
    temporal, ui, model = free_port(), free_port(), free_port()
    ports = ("--temporal-port", str(temporal), "--ui-port", str(ui), "--model-port", str(model))
    # As uvx and pipx run it: nothing of the user's is there yet.
    path = f"{(await temporal_binary()).parent}:{os.environ['PATH']}"
    fresh = {"HOME": str(here / "home"), "XDG_CACHE_HOME": str(here / "home/.cache"), "PATH": path}
    said = await run(programs / "clotho", "--version", folder=here, environment=fresh)
    assert said.output == f"clotho {metadata.version('clotho-rollouts')}\n"
    with (here / "dev.log").open("wb") as log:
        dev = await asyncio.create_subprocess_exec(
            programs / "clotho", "dev", *ports,
            cwd=here, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **fresh},
        )  # fmt: skip
    try:

        async def ready() -> bool:
            assert dev.returncode is None, (here / "dev.log").read_text()
            return "ready" in (here / "dev.log").read_text()

        await eventually(ready, "services from the wheel")
        done = await run(
            programs / "clotho", "run", "my_tasks:Greeting", "--run", "first", "--group-size", "2",
            "--temperature", "0.1", "--temporal", f"127.0.0.1:{temporal}", "--model", f"http://127.0.0.1:{model}/v1",
            folder=here, environment=fresh,
        )  # fmt: skip
        assert done.status == 0, done.error
        exported = await run(programs / "clotho", "export", "first", "--output", "first.jsonl", folder=here)
        assert exported.status == 0, exported.error
        rollouts = [json.loads(line) for line in (here / "first.jsonl").read_text().splitlines()]
        assert len(rollouts) == 4
        assert [rollout["reward"] for rollout in rollouts] == [1.0] * 4
        await check_the_plugin(programs, here, fresh)
        refused = await run(
            programs / "clotho", "run", "my_tasks:Greeting", "--run", "exact", "--inference", "tokens",
            "--model", f"http://127.0.0.1:{model}/v1", folder=here, environment=fresh,
        )  # fmt: skip
        assert refused.status == 1
        assert "renderers and transformers: pip install 'clotho-rollouts[tokens]'" in refused.error
        examined = await run(programs / "clotho", "doctor", folder=here, environment=fresh)
        assert "token-exact inference: renderers and transformers not installed" in examined.output
    finally:
        dev.terminate()
        await dev.wait()
    await gone({dev.pid})


async def check_the_plugin(programs: Path, here: Path, environment: dict[str, str]) -> None:
    """What the installed plugin offers is there as Clotho's own is."""
    listed = await run(programs / "clotho", "--help", folder=here, environment=environment)
    assert "Show the best rollouts of RUN" in listed.output
    two = {**environment, "CLOTHO_PLUGINS__REWARDS__SHOWN": "2"}
    best = await run(programs / "clotho", "best", "first", folder=here, environment=two)
    assert [line.split()[1] for line in best.output.splitlines()] == ["1", "1"], best.error
    export = ("export", "first", "--format", "rewards", "--output", "rewards.txt")
    written = await run(programs / "clotho", *export, folder=here, environment=environment)
    assert written.status == 0, written.error
    assert sorted(line.split()[1] for line in (here / "rewards.txt").read_text().splitlines()) == ["1"] * 4
    tools = ("tools", "--json", "--toolset", "rewards")
    for set_, missing in ({}, "the run names no rule: set rewards.rule"), ({"rule": "Be brief."}, None):
        given = {**environment, "CLOTHO_RUN__PLUGINS": json.dumps({"rewards": set_})} if set_ else environment
        found = await run(programs / "clotho", *tools, folder=here, environment=given)
        assert [tool["missing"] for tool in json.loads(found.output)["tools"]] == [missing], found.error
    wrong = ("run", "file_tasks", "--run", "wrong", "--agent", "nop", "--set", "rewards.rules=x")
    named = await run(programs / "clotho", *wrong, folder=here, environment=environment)
    assert named.status == 1 and "plugins.rewards" in named.error and "rules" in named.error
    mistyped = {**environment, "CLOTHO_PLUGINS__REWARDS__SHOW": "2"}
    refused = await run(programs / "clotho", "best", "first", folder=here, environment=mistyped)
    assert refused.status == 1 and "CLOTHO_PLUGINS__REWARDS__SHOWN" in refused.error


@pytest.mark.slow
async def test_the_adapter_s_names_are_importable_beside_the_root_module(tmp_path: Path) -> None:
    code = "from clotho.plugins.atropos import HermesAgentBaseEnv; import atropos_adapter as root; " \
        "assert root.HermesAgentBaseEnv is HermesAgentBaseEnv"  # fmt: skip
    answer = await run(sys.executable, "-c", code, folder=tmp_path)
    assert answer.status == 0, answer.error


@pytest.mark.slow
async def test_the_installation_takes_no_top_level_name_and_little_room(programs: Path) -> None:
    site = next((programs.parent / "lib").glob("python*/site-packages"))
    assert not any(
        (site / name).exists() for name in ("workflows", "activities", "environments", "worker.py")
    )
    assert not (site / "transformers").exists(), "only --inference tokens needs it"
    files = (Path(at) / name for at, _, names in os.walk(site) for name in names)
    size = sum(path.lstat().st_size for path in files)
    assert size < 450e6, f"{size / 1e6:.0f} MB"
