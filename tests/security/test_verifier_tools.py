"""What tools that a verifier starts would load of the agent's files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.verification import VerifierSetup
from tests.sandbox.shell import Shell
from tests.sandbox.verifying import looking

PLANT = "echo planted >> /tmp/planted"
PYTHON = "import os; os.system('echo planted >> /tmp/planted')"


async def planted(local: LocalBackend, lease: str, command: str, **setup: Any) -> bool:
    """Whether what the agent planted runs with the verifier's `command`."""
    ctx = looking(local, lease, {"check.py": b"import json, base64, random"}, **setup)
    await ctx.terminal(command)
    return await ctx.read_bytes("/tmp/planted") is not None


MODULES = f"""
for m in json base64 random site sitecustomize usercustomize; do echo "{PYTHON}" > $m.py; done
"""


@pytest.mark.attack("verification", "a module of the workspace in place of one of the standard library")
@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import json, base64, random'",
        "echo '[]' | python3 -m json.tool",
        "python3 $CLOTHO_HIDDEN_FILES/check.py",
        "cp $CLOTHO_HIDDEN_FILES/check.py . && python3 check.py",
        "echo 'import json, random' | python3",
    ],
)
async def test_python_imports_nothing_of_the_workspace(
    local: LocalBackend, isolated: Shell, lease: str, command: str
) -> None:
    await isolated.run(MODULES)
    assert not await planted(local, lease, command)


async def test_an_agents_program_runs_as_the_agent_ran_it(
    local: LocalBackend, isolated: Shell, lease: str
) -> None:
    """It imports its own modules, and sees neither the hidden files' name nor the verifier's variables."""
    await isolated.run(
        "echo 'WORD = 7' > mine.py; echo 'import mine, os; print(mine.WORD, *os.environ)' > main.py"
    )
    ctx = looking(local, lease)
    assert (await ctx.terminal("python3 main.py"))["exit_code"] != 0
    word, *variables = (await ctx.terminal("$CLOTHO_AS_AGENT python3 main.py"))["output"].split()
    assert word == "7" and set(variables) == {"PATH", "LANG", "SHELL", "USER", "LOGNAME", "HOME"}


async def test_an_environment_may_trust_the_workspace(
    local: LocalBackend, isolated: Shell, lease: str
) -> None:
    await isolated.run(MODULES)
    assert await planted(local, lease, "python3 -c 'import json'", trust_workspace=True)


HOME_FILES = f"""
cd ~; mkdir -p .config/git .config/pip .config/fish bin
for f in .bashrc .bash_profile .profile .zshenv .zshrc .kshrc .inputrc; do echo '{PLANT}' > $f; done
printf '[core]\\n\\tfsmonitor = {PLANT}\\n\\tpager = {PLANT}\\n' > .gitconfig; cp .gitconfig .config/git/config
site=$(python3 -m site --user-site); mkdir -p $site
echo "{PYTHON}" > $site/usercustomize.py; echo "{PYTHON}" > $site/x.pth; echo "{PYTHON}" > .pythonrc.py
for t in git python3 ls cat; do printf '#!/bin/sh\\n{PLANT}\\n' > bin/$t; chmod +x bin/$t; done
"""
EXPORTS = f"""
export PATH=$HOME/bin:$PATH BASH_ENV=$HOME/.bashrc ENV=$HOME/.bashrc PYTHONSTARTUP=$HOME/.pythonrc.py
export PYTHONPATH=$HOME GIT_CONFIG_GLOBAL=$HOME/.gitconfig PROMPT_COMMAND='{PLANT}'
"""


@pytest.mark.attack("verification", "start-up files of shells, Python and git in the agent's home")
@pytest.mark.parametrize(
    "command",
    [
        "bash -c 'ls; cat /dev/null'",
        "sh -c ls",
        "python3 -c pass",
        "git init -q /var/tmp/r && git -C /var/tmp/r status && git -C /var/tmp/r log",
    ],
)
async def test_nothing_of_the_home_starts(
    local: LocalBackend, isolated: Shell, lease: str, command: str
) -> None:
    await isolated.run(HOME_FILES)
    last = isolated.job(EXPORTS)
    await isolated.sandbox.start(last)
    await isolated.ended(last.key)
    assert await isolated.text("ls", after=last.key) == "" and await isolated.text("rm /tmp/planted") == ""
    assert not await planted(local, lease, command, after=last.key)


HOOKS = "post-checkout pre-commit commit-msg post-commit post-index-change reference-transaction"
REPOSITORY = f"""
git init -q . && git config user.email a@b && git config user.name a
echo 1 > f && git add f && git commit -qm one
for hook in {HOOKS}; do printf '#!/bin/sh\\n{PLANT}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook; done
git config core.fsmonitor '{PLANT}; false'
git config core.pager '{PLANT}'
git config core.hooksPath .git/hooks
git config diff.external '{PLANT}; true'
git config log.showSignature true
git config gpg.program /work/gpg
git config core.editor '{PLANT}'
printf '#!/bin/sh\\n{PLANT}\\n' > gpg; chmod +x gpg
echo 2 > f
rm -f /tmp/planted
"""
DRIVERS = f"""
git config diff.evil.textconv '{PLANT}; cat'
git config diff.evil.command '{PLANT}; true'
git config filter.evil.clean '{PLANT}; cat'
git config filter.evil.smudge '{PLANT}; cat'
git config filter.evil.required true
git config uploadpack.packObjectsHook '{PLANT}; false'
echo '* diff=evil filter=evil' | tee .gitattributes > .git/info/attributes
git -c filter.evil.clean=cat add .gitattributes
git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c filter.evil.clean=cat commit -qm two
rm -f /tmp/planted
"""


@pytest.mark.attack("verification", "settings, hooks and attributes of the agent's git repository")
@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git log -p",
        "git diff --no-ext-diff",
        "git diff --no-ext-diff HEAD",
        "git checkout -q -- f",
        "git stash",
        "git -c user.name=v -c user.email=v commit -qam x",
        "git show HEAD:f",
    ],
)
async def test_git_runs_nothing_of_the_repositorys(
    local: LocalBackend, isolated: Shell, lease: str, command: str
) -> None:
    await ran_nothing(local, isolated, lease, REPOSITORY, command)


@pytest.mark.attack(
    "verification", "drivers of the agent's git repository, in a verifier that clones it first"
)
@pytest.mark.parametrize("command", ["log -p", "diff HEAD~1", "checkout -q HEAD~1", "status", "show HEAD:f"])
async def test_a_clone_runs_nothing_of_the_repositorys(
    local: LocalBackend, isolated: Shell, lease: str, command: str
) -> None:
    clone = f"git clone -q /work $TMPDIR/clone && git -C $TMPDIR/clone {command}"
    await ran_nothing(local, isolated, lease, REPOSITORY + DRIVERS, clone)


async def ran_nothing(local: LocalBackend, agent: Shell, lease: str, prepare: str, command: str) -> None:
    assert (await agent.run(prepare)).code == 0
    ctx = looking(local, lease)
    ran = await ctx.terminal(command)
    assert await ctx.read_bytes("/tmp/planted") is None, ran
    assert ran["exit_code"] == 0, ran


CONFTEST = "import pathlib; pathlib.Path('planted').touch()"
SETTINGS = {
    "pytest.ini": "[pytest]\naddopts = -p evil\n",
    "tox.ini": "[pytest]\naddopts = -p evil\n",
    "setup.cfg": "[tool:pytest]\naddopts = -p evil\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p evil'\n",
}


@pytest.mark.attack("verification", "conftest.py, plugins and settings of the workspace in pytest")
@pytest.mark.parametrize("settings", SETTINGS)
def test_pytest_loads_nothing_of_the_workspace(tmp_path: Path, settings: str) -> None:
    workspace, hidden = tmp_path / "work", tmp_path / "hidden"
    for folder in (workspace, hidden):
        folder.mkdir()
        (folder / f"test_{folder.name}.py").write_text("def test_it(): assert 1 + 1 == 2\n")
    (workspace / settings).write_text(SETTINGS[settings])
    for name in ("conftest.py", "evil.py"):
        (workspace / name).write_text(CONFTEST)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    for target in (str(hidden), "test_work.py"):
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", target],
            cwd=workspace,
            env={**kept, **VerifierSetup().variables()},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert not (workspace / "planted").exists()
