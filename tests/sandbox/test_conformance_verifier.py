import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clotho.errors import InvalidInput, SandboxLost, TakenOver
from clotho.sandbox.backend import JobState, SandboxSpec
from tests.sandbox.backends import Backend
from tests.sandbox.shell import Shell, until

HIDDEN = {"check.py": b"print('checked')", "more/answer.txt": b"42"}


async def verifier(backend: Backend, lease: str, epoch: int = 0) -> Shell:
    return Shell(await backend.open_verifier(lease, epoch, HIDDEN))


async def test_sees_the_agents_files_in_place(backend: Backend, own: Shell, lease: str) -> None:
    await own.run("echo 1 > a; echo 2 > ~/b; echo 3 > ${TMPDIR:-/tmp}/c")
    verify = await verifier(backend, lease)
    assert (await verify.sandbox.read_file("a", 10)).content == b"1\n"
    assert (await verify.sandbox.read_file("~/b", 10)).content == b"2\n"
    assert await verify.text("cat a ~/b $HOME/b") == "1\n2\n2"
    if own.sandbox.workspace == "/work":
        assert await verify.text("cat /tmp/c") == "3"


async def test_has_hidden_files_that_the_agent_never_sees(backend: Backend, own: Shell, lease: str) -> None:
    verify = await verifier(backend, lease)
    assert await verify.text(
        "python3 $CLOTHO_HIDDEN_FILES/check.py; cat $CLOTHO_HIDDEN_FILES/more/answer.txt"
    ) == ("checked\n42")
    hidden = verify.sandbox.hidden_files
    assert hidden == await verify.text("echo $CLOTHO_HIDDEN_FILES")
    assert (await verify.sandbox.read_file(f"{hidden}/more/answer.txt", 10)).content == b"42"


async def test_agents_processes_are_dead_before(backend: Backend, own: Shell, lease: str) -> None:
    await own.run("(setsid sh -c 'while :; do date +%N > ticking; done' >/dev/null 2>&1 &)")
    await own.run("until [ -e ticking ]; do sleep 0.01; done")
    session = own.job("sleep 1000", session="server")
    await own.sandbox.start(session)
    verify = await verifier(backend, lease)
    assert (await own.ended(session.key)).state is JobState.KILLED
    assert await verify.text("cat ticking; sleep 0.2; cat ticking | sort -u | wc -l") != ""
    assert (
        await verify.text('a=$(cat ticking); sleep 0.2; [ "$a" = "$(cat ticking)" ] && echo still') == "still"
    )
    with pytest.raises(SandboxLost):
        await own.run("true")
    assert (await backend.attach(lease, own.sandbox.incarnation)).incarnation == own.sandbox.incarnation


async def test_nothing_of_the_agents_home_reaches_its_python(
    backend: Backend, own: Shell, lease: str
) -> None:
    site = await own.text("python3 -m site --user-site")
    plant = f"mkdir -p {site}; echo 'print(\"planted\")' > {site}/usercustomize.py"
    await own.run(
        f"{plant}; echo 'echo planted' > ~/.bashrc; cp ~/.bashrc ~/.profile; export BASH_ENV=~/.bashrc"
    )
    assert "planted" in await own.text("python3 -c pass")
    verify = await verifier(backend, lease)
    assert await verify.text("python3 -c 'print(1)'; echo ${BASH_ENV-}; echo $PYTHONNOUSERSITE") == "1\n\n1"
    assert await verify.text("echo $HOME") == own.sandbox.home
    assert await verify.text("touch $TMPDIR/x && ls $TMPDIR") == "x"
    assert await verify.text("ls -A ${TMPDIR%/*}") == "hidden\ntmp"


async def test_same_epoch_is_attached_and_its_jobs_are_found(
    backend: Backend, own: Shell, lease: str
) -> None:
    first = await verifier(backend, lease)
    assert (await first.run("echo x >> count; exit 3", name="check")).code == 3
    again = await verifier(backend, lease)
    assert again.sandbox.incarnation == first.sandbox.incarnation
    assert (await again.run("echo x >> count; exit 3", name="check")).code == 3
    assert await again.text("cat count", name="count") == "x"


async def test_another_worker_attaches_to_the_same_epoch(
    backend: Backend, own: Shell, kind: str, folder: Path, lease: str
) -> None:
    first = await verifier(backend, lease)
    job = first.job("sleep 0.2; echo x >> count; exit 3", name="check")
    await first.sandbox.start(job)
    attach = f"""
import asyncio
from pathlib import Path
from tests.sandbox.conftest import BACKENDS, be_patient
from tests.sandbox.shell import Shell
be_patient()
async def main():
    backend = BACKENDS[{kind!r}](Path({str(folder)!r}) / "sandboxes-{kind}")
    shell = Shell(await backend.open_verifier({lease!r}, 0, {{}}))
    print(shell.sandbox.incarnation, (await shell.run({job.script!r}, name="check")).code)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", attach, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.decode().split() == [first.sandbox.incarnation, "3"]
    assert await first.text("cat count", name="count") == "x"


async def test_new_epoch_supersedes(backend: Backend, own: Shell, lease: str) -> None:
    first = await verifier(backend, lease)
    await first.run("echo x > $TMPDIR/left")
    second = await verifier(backend, lease, epoch=1)
    assert await second.text("ls -A $TMPDIR; echo end") == "end"
    with pytest.raises(SandboxLost):
        await first.run("true", name="late")
    with pytest.raises(SandboxLost):
        await verifier(backend, lease, epoch=0)


async def test_ended_epoch_is_not_started_again(backend: Backend, own: Shell, lease: str) -> None:
    first = await verifier(backend, lease)
    first.control.say("stop")

    async def ended() -> bool:
        return first.control.incarnation() is None

    await until(ended)
    with pytest.raises(SandboxLost):
        await first.run("true", name="late")
    with pytest.raises(SandboxLost):
        await verifier(backend, lease)


async def test_needs_the_agents_sandbox(backend: Backend, own: Shell, lease: str) -> None:
    await backend.destroy(lease)
    with pytest.raises(SandboxLost):
        await verifier(backend, lease)


async def test_hidden_files_stay_in_their_folder(
    backend: Backend, own: Shell, spec: SandboxSpec, lease: str
) -> None:
    for name in ("../up", "/etc/passwd", "a/../../b", "."):
        with pytest.raises(InvalidInput):
            await backend.open_verifier(lease, 0, {name: b""})
    assert await (await verifier(backend, lease)).text("ls $CLOTHO_HIDDEN_FILES | xargs") == "check.py more"


@pytest.mark.needs("host_files")
async def test_renewal_reaches_it(backend: Backend, own: Shell, lease: str) -> None:
    verify = await verifier(backend, lease)
    began = time.time()
    await backend.renew(lease, 3000)
    for each in (verify, own):
        assert began - 1 <= each.control.deadline() - 3000 <= time.time() + 1


async def test_obeys_nothing_that_is_asked_under_a_lower_fence(
    backend: Backend, own: Shell, lease: str
) -> None:
    former, newer = await verifier(backend, lease), await verifier(backend, lease)
    await former.run("echo before > kept")
    await newer.sandbox.raise_fence(1)
    late = former.job("echo late >> started")
    await former.sandbox.start(late)
    with pytest.raises(TakenOver):
        await former.sandbox.write_file("written", b"late")
    with pytest.raises(TakenOver):
        await former.sandbox.read_file("kept", 10)
    assert await newer.text("ls") == "kept"
    await newer.sandbox.start(late)  # under the new fence the same command runs, once
    await newer.ended(late.key)
    await newer.sandbox.write_file("written", b"newer")
    assert await newer.text("cat started written") == "late\nnewer"
