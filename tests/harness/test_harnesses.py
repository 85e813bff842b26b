"""Harnesses as they are started: their scripts, and the real programs where they are installed."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from clotho.errors import InvalidInput
from clotho.plugins.harness.digest import Normalization
from clotho.plugins.harness.harnesses import KNOWN, harness_of
from clotho.plugins.harness.harnesses.harness import Harness, Launch, Start
from clotho.plugins.harness.program import tells
from clotho.plugins.harness.settings import HarnessSettings
from tests.harness.scripted_gateway import ScriptedGateway

INSTALLED = Path(".venv/harnesses").absolute()
LAUNCHER = Path(__file__).with_name("mini")
VERSIONS = {"mini-swe-agent": "2.4.6", "codex": "0.169.0", "claude-code": "2.1.197", "opencode": "1.18.33"}
"""Those that `make harnesses` installs."""
TASK = "Write 'hello' to \"a.txt\".\n$HOME `id` \\ {task_file} ü 🦀 \x7f\u2028\x85 end\n"
REPORTER = """#!{python}
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sys.stdin.read()]))
sys.exit(7)
"""
INHERITED = {
    "OPENAI_API_KEY": "of-the-image",
    "OPENAI_ORGANIZATION": "of-the-image",
    "ANTHROPIC_AUTH_TOKEN": "of-the-image",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "CODEX_HOME": "/elsewhere",
    "KEPT": "as it was",
}
COMMAND = (
    "tool",
    "--task={task_file}",
    "{url}/x",
    "{key}",
    "{model}",
    "{workdir}",
    "{home}",
    '{"a": "{b}"}',
    "$HOME",
)


class Places:
    """Folders of one start, outside of a sandbox."""

    def __init__(self, root: Path) -> None:
        self.workdir, self.home, self.programs = root / "my work", root / "home", root / "bin: and 'more"
        for folder in (self.workdir, self.home, self.programs):
            folder.mkdir(parents=True)

    def start(self, url: str = "http://127.0.0.1:4180", **fields: Any) -> Start:
        places = {"workdir": str(self.workdir), "home": str(self.home)}
        return Start(**{"task": TASK, "url": url, "key": "k'1", "model": "org/model", **places, **fields})

    def run(self, launch: Launch, **variables: str) -> "subprocess.CompletedProcess[str]":
        """As a sandbox does: files are there, and the script is all that bash is given."""
        for path, content in launch.files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
        usual = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return subprocess.run(
            ["bash", "-c", launch.script],
            env=usual | variables,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def known(name: str, **settings: Any) -> Harness:
    return harness_of(name, HarnessSettings(**({"command": COMMAND} if name == "command" else {}) | settings))


def reported(name: str, places: Places, **settings: Any) -> tuple[list[str], dict[str, str], str, str, int]:
    """What a program that only tells of it is started with."""
    harness = known(name, **settings)
    program = places.programs / harness.program
    program.write_text(REPORTER.format(python=sys.executable))
    program.chmod(0o755)
    folder = places.programs.parent / "seen"
    folder.symlink_to(places.programs)  # a path with a colon can't be on PATH
    harness = known(name, path=str(folder), **settings)
    done = places.run(harness.start(places.start()), **INHERITED)
    assert done.stderr == ""
    arguments, environment, where, stdin = json.loads(done.stdout)
    return arguments, environment, where, stdin, done.returncode


@pytest.mark.parametrize("name", KNOWN)
def test_a_script_starts_the_program_with_nothing_inherited_but_what_is_not_for_harnesses(
    name: str, places: Places
) -> None:
    arguments, environment, where, stdin, status = reported(name, places, variables={"OWN": "it's"})
    assert status == 7, "the script's exit code is the program's"
    assert environment["KEPT"] == "as it was" and environment["OWN"] == "it's"
    assert "of-the-image" not in environment.values() and "CLAUDE_CODE_USE_BEDROCK" not in environment
    assert environment.get("CODEX_HOME") in (None, f"{places.home}/.codex")
    assert environment["NO_PROXY"] == "127.0.0.1,localhost"
    assert where == str(places.home / ".harness" if name == "mini-swe-agent" else places.workdir)
    assert TASK not in " ".join(arguments), "an argument has at most 128 KiB"
    assert stdin == (TASK if name in ("codex", "claude-code", "opencode") else "")


@pytest.mark.parametrize("name", KNOWN)
def test_a_setting_overrides_a_variable_of_the_harness(name: str, places: Places) -> None:
    environment = reported(name, places, variables={"no_proxy": "*"})[1]
    assert environment["no_proxy"] == "*"


def test_a_command_is_told_where_everything_is(places: Places) -> None:
    arguments, environment, *_ = reported("command", places)
    task = f"{places.home}/.harness/task.md"
    assert arguments == [
        f"--task={task}",
        "http://127.0.0.1:4180/x",
        "k'1",
        "org/model",
        str(places.workdir),
        str(places.home),
        '{"a": "{b}"}',
        "$HOME",
    ]
    assert Path(task).read_text() == TASK
    assert environment["OPENAI_BASE_URL"] == "http://127.0.0.1:4180/v1"
    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:4180"
    assert environment["OPENAI_API_KEY"] == environment["ANTHROPIC_API_KEY"] == "k'1"


@pytest.mark.parametrize("name", KNOWN)
def test_a_program_that_is_not_there_is_no_agents_end(name: str, places: Places) -> None:
    harness = known(name, own_failures=(77,))
    done = places.run(harness.start(places.start()), PATH="/usr/bin:/bin")
    assert done.returncode == 127 and harness.program in done.stderr
    assert {126, 127, 77} <= harness.own_failures
    assert places.run(Launch(harness.version_command, {})).returncode == 127


def test_packages_of_another_python_are_no_agents_end(places: Places) -> None:
    """The script that `make harnesses` installs tells them from a failure of the harness, which is tried again."""
    script = places.programs.parent / "bin" / "mini"
    package = places.programs.parent / "mini" / "minisweagent" / "run"
    for folder in (script.parent, package):
        folder.mkdir(parents=True)
    shutil.copy(LAUNCHER, script)
    for module, text in {
        "__init__": "",
        "run/__init__": "",
        "run/mini": "import compiled_for_another",
    }.items():
        (package.parent / f"{module}.py").write_text(text)
    done = places.run(known("mini-swe-agent", path=str(script.parent)).start(places.start()))
    assert done.returncode == 127
    assert re.match(r"Python 3\.\d+ of this sandbox .*compiled_for_another", done.stdout)


def test_what_is_no_harness_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="no harness 'aider': those known are mini-swe-agent, codex, "):
        harness_of("aider", HarnessSettings())
    with pytest.raises(InvalidInput, match="`command` needs a `command`"):
        harness_of("command", HarnessSettings())


@pytest.mark.parametrize(
    "fields",
    [
        {"path": "bin"},
        {"path": "/opt/a:"},
        {"path": "~/bin"},
        {"variables": {"1A": "x"}},
        {"variables": {"A;id": "x"}},
        {"variables": {"A": "\0"}},
        {"port": 80},
        {"own_failures": [0]},
        {"dialect": "completions"},
    ],
)
def test_settings_that_no_script_can_have_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HarnessSettings.model_validate(fields)


def test_the_context_is_told_where_it_is_known(places: Places) -> None:
    for name in ("codex", "opencode"):
        files = known(name).start(places.start(context_tokens=4321)).files
        assert any(b"4321" in content for content in files.values())
        assert not any(b"4321" in each for each in known(name).start(places.start()).files.values())


# ---- real ones ----


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mini-swe-agent", "codex", "claude-code", "opencode"])
async def test_a_harness_does_its_task_and_asks_the_same_when_it_starts_anew(
    name: str, tmp_path: Path
) -> None:
    harness = known(name, path=str(INSTALLED / "bin"))
    if shutil.which(harness.program, path=INSTALLED / "bin") is None:
        pytest.skip(f"{harness.program} isn't installed: `make harnesses`")
    digests = []
    for number in ("first", "second"):
        places = Places(tmp_path / number)
        async with ScriptedGateway("key") as gateway:
            ended = await gateway.beside(places.run, harness.start(places.start(gateway.url, key="key")))
        assert ended.returncode == 0, ended.stderr
        assert (places.workdir / "a.txt").read_text() == "hello\n"
        assert {path for path, _ in gateway.asked} == {harness.dialect}
        assert any(TASK.rstrip() in str(each.content) for each in gateway.asked[0][1].messages)
        assert [asked.model for _, asked in gateway.asked] == ["org/model"] * len(gateway.asked)
        normalization = Normalization(harness.volatile, (str(places.workdir), str(places.home)))
        digests.append(
            [
                [*map(normalization.digest, asked.messages), normalization.digest_of_tools(asked.tools)]
                for _, asked in gateway.asked
            ]
        )
        sampled = [normalization.digest(message) for message in gateway.answered[:-1]]
        assert all(digest in digests[-1][-1] for digest in sampled), "answers come back as they were"
    assert digests[0] == digests[1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "version"), VERSIONS.items())
def test_an_installed_harness_tells_its_version(name: str, version: str, tmp_path: Path) -> None:
    harness = known(name, path=str(INSTALLED / "bin"))
    if shutil.which(harness.program, path=INSTALLED / "bin") is None:
        pytest.skip(f"{harness.program} isn't installed: `make harnesses`")
    done = Places(tmp_path).run(Launch(harness.version_command, {}))
    assert done.returncode == 0 and tells(version, done.stdout), done.stderr
