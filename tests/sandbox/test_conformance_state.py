"""The working directory and exported variables, from one command to the next."""

import pytest

from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import JobState
from tests.sandbox.shell import Shell


async def prepared(shell: Shell, name: str) -> str:
    await shell.run("mkdir -p 'd d'; cd 'd d'; export A='x y\n\"q\" $HOME é' B=1; C=no", name=name)
    return job_key(name)


async def test_directory_and_exported_variables_are_inherited(shell: Shell) -> None:
    first = await prepared(shell, "state 1")
    second = await shell.run(
        'printf "%s|%s|%s" "$PWD" "$A" "$C"; cd ..; unset B; exit 4', "state 2", after=first
    )
    assert (second.code, second.output.decode()) == (
        4,
        f'{shell.sandbox.workspace}/d d|x y\n"q" $HOME é|',
    )
    third = await shell.text('echo "$PWD ${B-unset}"', after=job_key("state 2"))
    assert third == f"{shell.sandbox.workspace} unset"


async def test_fresh_job_inherits_nothing(shell: Shell) -> None:
    await prepared(shell, "state fresh")
    assert await shell.text("echo $PWD${A-}") == shell.sandbox.workspace


@pytest.mark.parametrize(
    ("script", "saved"),
    [
        ("trap 'rm -f x' EXIT; export T=1", "T=1"),
        ("export T=1; exit 7", "T=1"),
        ("set -euo pipefail; export T=1; false", "T=1"),
        ("exec true", "T="),
        ("export PATH=/nowhere T=2", "T=2"),
        ("if (", "T="),
        ("export T=3; exec 9>f9 10>f10; echo mine >&9; echo mine >&10", "T=3"),
        ("exec 30>f9; export T=4; flock 30; echo mine >&30", "T=4"),
        ("export T=5; exit() { :; }", "T=5"),
        ("export T=6; set -x", "T=6"),
        ("export T=7; kill -9 $$", "T="),
        ("declare -rx T=8", "T=8"),
    ],
)
async def test_state_survives(shell: Shell, script: str, saved: str) -> None:
    first = await prepared(shell, f"survives {script}")
    await shell.run(script, f"survives 2 {script}", after=first)
    seen = await shell.text('echo "$PWD B=$B T=$T"', after=job_key(f"survives 2 {script}"))
    assert seen == f"{shell.sandbox.workspace}/d d B=1 {saved}"
    written = await shell.text("cat 'd d'/f9 'd d'/f10 2>/dev/null; rm -f 'd d'/f*")
    assert written.split() == ["mine"] * script.count("mine")


async def test_state_survives_a_timeout(shell: Shell) -> None:
    first = await prepared(shell, "timeout 1")
    result = await shell.run("trap '' TERM; cd /; while :; do :; done", "timeout 2", after=first, timeout=0.2)
    assert result.state is JobState.TIMEOUT
    assert await shell.text("echo $B", after=job_key("timeout 2")) == "1"


async def test_state_is_inherited_from_a_command_that_still_runs(shell: Shell) -> None:
    first = await prepared(shell, "running 1")
    job = shell.job("sleep 1000", after=first, session="running")
    await shell.sandbox.start(job)
    assert await shell.text("echo $B", after=job.key) == "1"
    await shell.sandbox.kill(job.key)


async def test_vanished_directory_is_reported_and_not_fatal(shell: Shell) -> None:
    await shell.run("mkdir gone; cd gone; rmdir ../gone", "gone")
    result = await shell.run("echo ok", after=job_key("gone"))
    workspace = shell.sandbox.workspace
    assert (result.code, result.output.decode()) == (
        0,
        f"[{workspace}/gone no longer exists; now in {workspace}]\nok\n",
    )


async def test_workdir_overrides(shell: Shell) -> None:
    first = await prepared(shell, "workdir")
    assert await shell.text("pwd; echo $B", after=first, workdir="/usr") == "/usr\n1"
    assert await shell.text("pwd", after=first, workdir="..") == shell.sandbox.workspace
    assert await shell.text("pwd", workdir="/work") == shell.sandbox.workspace
    assert await shell.text("pwd", workdir="~") == shell.sandbox.home
    missing = await shell.run("pwd", workdir="/missing")
    assert (missing.code, missing.output) == (126, b"cd: /missing: No such file or directory\n")


async def test_symbolic_directory_keeps_its_name(shell: Shell) -> None:
    await shell.run("mkdir -p real; ln -sfn real link; cd link", "link")
    assert await shell.text("pwd; cd ..; pwd", after=job_key("link")) == (
        f"{shell.sandbox.workspace}/link\n{shell.sandbox.workspace}"
    )


async def test_previous_directory_is_inherited(shell: Shell) -> None:
    await shell.run("cd /usr; cd /usr/bin", "dash")
    assert await shell.text("cd -", after=job_key("dash")) == "/usr"


async def test_large_environment(shell: Shell) -> None:
    await shell.run("export BIG=$(printf '%0100000d' 0)", "big")
    assert await shell.text("echo ${#BIG}", after=job_key("big")) == "100000"
