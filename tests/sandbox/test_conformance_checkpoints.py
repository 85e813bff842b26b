import asyncio
import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from zstandard import ZstdDecompressor

from clotho.errors import CommandConflict
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import JobState
from clotho.sandbox.checkpoints import NotTaken
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell, until

LISTING = (
    r"find . -mindepth 1 -maxdepth 4 -printf '%P %y %m %n %s %T@ %u %g %l\0' 2>/dev/null"
    r" | LC_ALL=C sort -z | tr '\0\n' '\n?' | cat -v"
)

ODDITIES = r"""
    echo plain > plain; chmod 640 plain; touch -d '2001-02-03 04:05:06.123456789' plain
    echo run > run; chmod 6755 run
    mkdir -p dir/inner empty sticky readonly; chmod 1777 sticky; echo x > readonly/x; chmod 555 readonly
    ln plain dir/hard; ln plain dir/inner/hard
    ln -s plain link; ln -s /nowhere/at/all dangling; ln -s loop loop; ln -s .. dir/up; ln -P link dir/linked-link
    touch -h -d '1999-09-09 09:09:09.987654321' link
    mkfifo fifo -m 600; ln fifo dir/fifo
    truncate -s 30M sparse; printf middle | dd of=sparse bs=1 seek=15000000 conv=notrunc status=none
    truncate -s 1M hole; printf end | dd of=end bs=1 seek=1048573 status=none; : > nothing
    printf unreadable > unreadable; chmod 000 unreadable
    mkdir -p closed/deeper; echo inside > closed/file; ln closed/file after-closed; chmod 000 closed/deeper closed
    touch $'new\nline' $'\xff\xfe invalid' ' ' -- '-rf' '*' $'tab\t' "$(printf 'n%.0s' $(seq 255))"
    touch -d '1965-01-01 00:00:00.5' old; touch -d @20000000000 far
    python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
    python3 -c "
import os
for n in range(1500): os.mkdir('deep-directory'); os.chdir('deep-directory')
open('bottom', 'w').write('bottom')"
    touch -d '2002-02-02 02:02:02.222222222' dir readonly
"""
UNLOCK = "chmod 700 closed; chmod 700 closed/deeper; chmod 400 unreadable"
BOTTOM = """python3 -c "
import os
for n in range(1500): os.chdir('deep-directory')
print(open('bottom').read())" """


async def test_files_and_shell_come_back(own: Shell, copies: Copies) -> None:
    made = "echo 1 > a; mkdir -p d/e; echo 2 > ~/b; echo 3 > ${TMPDIR:-/tmp}/c; cd d/e; export X='x  y'"
    await own.run(made, name="made")
    shell = await copies.copy(own, after=job_key("made"))
    look = 'cat ../../a ~/b ${TMPDIR:-/tmp}/c; echo "$X"; echo $PWD; cd ../..; pwd; touch new ~/new'
    seen = await shell.run(look, after=job_key("made"))
    workspace = shell.sandbox.workspace
    assert seen.output.decode().splitlines() == ["1", "2", "3", "x  y", f"{workspace}/d/e", workspace]


async def test_a_sandbox_from_an_older_checkpoint_is_not_taken_for_one_from_the_newer(
    own: Shell, copies: Copies
) -> None:
    """A restore that is tried again after a newer one was taken. From the same one it is found."""
    await own.run("echo 1 >> made")
    await copies.copy(own)
    await own.run("echo 2 >> made")
    newer = await copies.take(own)
    again = await copies.restore_again(newer)
    assert await again.text("cat made") == "1\n2"
    assert (await copies.restore_again(newer)).sandbox.incarnation == again.sandbox.incarnation


async def test_odd_trees_come_back_the_same(own: Shell, copies: Copies) -> None:
    assert (await own.run(ODDITIES)).code == 0
    before = await own.text(LISTING)
    shell = await copies.copy(own)
    assert await own.text(LISTING) == before, "the checkpoint changed it"
    after = await shell.text(LISTING)
    assert after.replace("socket", "") == "\n".join(
        line for line in before.splitlines() if not line.startswith("socket ")
    )
    for each in (own, shell):
        await each.run(UNLOCK)
    assert await shell.text(f"{LISTING} | grep -v socket") == await own.text(f"{LISTING} | grep -v socket")
    contents = (
        "find . -type f -links -9 -exec sha256sum {} + | LC_ALL=C sort | cat -v; readlink link loop dir/up"
    )
    assert await shell.text(contents) == await own.text(contents)
    assert int(await shell.text("du -k sparse hole end | awk '{sum += $1} END {print sum}'")) < 100
    assert (
        await shell.text("[ plain -ef dir/inner/hard ] && [ after-closed -ef closed/file ] && echo linked")
        == "linked"
    )
    assert await shell.text(BOTTOM) == "bottom"


async def test_archive_is_a_tar_that_others_read(own: Shell, copies: Copies, tmp_path: Path) -> None:
    """GNU tar reads its files, sparse ones and links."""
    await own.run(ODDITIES)
    await own.run(f"{UNLOCK}; rm -r deep-directory; touch old")
    taken = await copies.take(own)
    content = ZstdDecompressor().decompressobj().decompress(copies.blob.read_bytes())
    assert hashlib.sha256(content).hexdigest() == taken.digest
    assert (len(content), copies.blob.stat().st_size) == (taken.content_size, taken.size)
    owner = "--same-owner" if os.geteuid() == 0 else "--no-same-owner"
    options = ["--warning=no-timestamp", "--same-permissions", owner]
    command = ["tar", "-x", *options, "-C", str(tmp_path)]
    assert subprocess.run(command, input=content, capture_output=True).stderr == b""
    listing = LISTING.replace("%u %g ", "").replace("-maxdepth 4", "! -type d") + " | grep -v ^socket"
    seen = subprocess.run(listing, shell=True, cwd=tmp_path / "work", capture_output=True)  # noqa: S602
    assert seen.stdout.decode().strip() == await own.text(listing)


WRITER = """
import sqlite3, time
db = sqlite3.connect('bank.db', isolation_level=None)
db.execute('pragma journal_mode=MODE')
db.execute('create table accounts (id integer primary key, amount integer)')
db.execute('create table filler (text)')
with db: db.executemany('insert into accounts values (?, 100)', [(n,) for n in range(100)])
print('ready', flush=True)
n = 0
while True:
    n += 1
    db.execute('begin')
    db.execute('update accounts set amount = amount - 1 where id = ?', (n % 100,))
    db.execute('insert into filler values (?)', ('x' * (n * 37 % 5000),))
    db.execute('update accounts set amount = amount + 1 where id = ?', (n * 7 % 100,))
    db.execute('commit')
    print(n, flush=True)
    time.sleep(0.001)
"""
CHECK = """python3 -c "
import sqlite3
db = sqlite3.connect('bank.db')
print(*db.execute('pragma integrity_check').fetchone())
print(*db.execute('select sum(amount) from accounts').fetchone())" """


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_database_written_meanwhile_is_intact(own: Shell, copies: Copies, kind: str, mode: str) -> None:
    await own.sandbox.write_file("writer.py", WRITER.replace("MODE", mode).encode())
    job = own.job("python3 writer.py", session="writer")
    await own.sandbox.start(job)
    await own.output_contains(job.key, b"ready")
    taken = [await copies.take(own)]

    async def writes_on() -> None:
        """What it has written twice more was changed since the last checkpoint."""
        before = (await own.sandbox.output(job.key)).count(b"\n")

        async def written() -> bool:
            return (await own.sandbox.output(job.key)).count(b"\n") > before + 1

        await until(written)

    for _ in range(10 if kind == "local" else 3):  # the supervisor that freezes is the same everywhere
        shell = await copies.restore(taken[-1])
        assert await shell.text(CHECK) == "ok\n10000"
        assert not taken[-1].exact
        await copies.destroy()
        await writes_on()
        taken.append(await copies.take(own))
    assert len({each.digest for each in taken}) == len(taken), "it was being written"
    assert (await own.sandbox.wait(job.key, 0)).state is JobState.RUNNING


async def test_exact_tells_what_a_checkpoint_leaves_behind(own: Shell, copies: Copies, kind: str) -> None:
    isolated = kind in ("local", "commit", "apptainer", "remote", "ssh")
    await own.run("echo x > x")
    assert (await copies.take(own)).exact is isolated
    background = own.job("sleep 1000", session="background")
    await own.sandbox.start(background)
    assert not (await copies.take(own)).exact
    await own.sandbox.kill(background.key)
    await own.ended(background.key)
    if isolated:
        assert (
            await own.text("while pgrep -f '^sleep 1000' >/dev/null; do sleep 0.01; done; echo gone")
            == "gone"
        )
    assert (await copies.take(own)).exact is isolated
    if isolated:
        for left in ("/dev/shm/x", "/var/tmp/x", *(["/run/x"] if kind != "apptainer" else [])):
            await own.run(f"touch {left}")
            assert not (await copies.take(own)).exact, left
            await own.run(f"rm {left}")
        await own.run("python3 -c 'import ctypes; ctypes.CDLL(None).shmget(1, 4096, 0o1600)'")
        assert not (await copies.take(own)).exact


async def test_nothing_is_written_while_nothing_changes(own: Shell, copies: Copies) -> None:
    await own.run("echo 1 > file; mkdir d", name="first")
    first = await copies.take(own, after=job_key("first"))
    copies.blob.unlink()
    quiet = "cat file; ls > /dev/null; f=$(mktemp); rm $f; export B=1"
    await own.run(quiet, name="second", after=job_key("first"))
    second = await copies.take(own, job_key("second"), previous=first)
    assert not copies.blob.exists()
    assert (second.digest, second.size) == (first.digest, first.size)
    assert second.shell != first.shell
    for change in ("echo 2 > file", "chmod 600 file", "mv file file2", "touch d/new", "rm -r d"):
        await own.run(change)
        first = await copies.take(own, previous=first)
        assert copies.blob.exists(), change
        copies.blob.unlink()


async def test_change_right_after_a_checkpoint_is_seen(own: Shell, copies: Copies) -> None:
    """Within the grain of the clock that change times are taken from."""
    job = own.job("while read n; do printf %s $((n % 10)) 1<> file; echo did $n; done", session="writer")
    await own.run("echo 0 > file")
    await own.sandbox.start(job)
    seen = await copies.take(own)
    for number in range(1, 31):
        await own.sandbox.send_input(job.key, b"%d\n" % number)
        await own.output_contains(job.key, b"did %d\n" % number)
        copies.blob.unlink(missing_ok=True)
        seen = await copies.take(own, previous=seen)
        assert copies.blob.exists(), number
    assert await own.text("cat file") == "0"


async def test_too_large_is_a_result(own: Shell, copies: Copies) -> None:
    await own.run("head -c 3M /dev/urandom > large; truncate -s 10G sparse || truncate -s 100M sparse")
    job = own.job("while :; do date +%N > tick; echo; sleep 0.01; done", session="ticking")
    await own.sandbox.start(job)
    await own.output_contains(job.key, b"\n")
    result = await own.sandbox.checkpoint(copies.blob, max_bytes=3 << 20)
    assert isinstance(result, NotTaken)
    assert result.reason == "too_large"
    assert 3 << 20 < result.size < 4 << 20
    assert not copies.blob.exists()
    assert (
        await own.text('a=$(cat tick); while [ "$a" = "$(cat tick)" ]; do sleep 0.05; done; echo on') == "on"
    )
    await own.sandbox.kill(job.key)
    await own.ended(job.key)
    assert not isinstance(await own.sandbox.checkpoint(copies.blob, max_bytes=4 << 20), NotTaken)


async def test_restored_sandbox_knows_the_background_jobs_of_the_other(own: Shell, copies: Copies) -> None:
    running, ended = own.job("sleep 1000", session="proc_1"), own.job("exit 4", "ended", session="proc_2")
    for session in (running, ended):
        await own.sandbox.start(session)
    await own.ended(ended.key)
    taken = await copies.take(own)
    states = {session.key: (session.state, session.exit_code) for session in taken.sessions}
    assert states == {running.key: (JobState.RUNNING, None), ended.key: (JobState.EXITED, 4)}
    shell = await copies.restore(taken)
    found = {session.session: session for session in await shell.sandbox.sessions()}
    assert (found["proc_1"].script, found["proc_1"].status.state) == ("sleep 1000", JobState.LOST)
    assert found["proc_2"].status.exit_code == 4
    assert found["proc_1"].started == pytest.approx(taken.sessions[0].started, abs=60)
    await shell.sandbox.start(running)
    assert (await shell.sandbox.wait(running.key, 0)).state is JobState.LOST
    with pytest.raises(CommandConflict):
        await shell.run("something else", "ended")
    again = await copies.take(shell)
    assert {session.key for session in again.sessions} == {running.key, ended.key}


@pytest.mark.needs("same_process")
async def test_checkpoints_stay_small_however_much_was_done(
    own: Shell, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has one of every turn."""
    monkeypatch.setattr("clotho.sandbox.supervised.jobs.MOST_SESSIONS_KEPT", 2)
    sizes = []
    for number in range(3):
        await own.sandbox.start(own.job("sleep 1000", session="runs"))
        for ended in [own.job("true", session="ended") for _ in range(3)]:
            await own.sandbox.start(ended)
            await own.ended(ended.key)
        await own.sandbox.write_file("file", b"", key=job_key(f"write {number}"))
        taken = await copies.take(own)
        assert [session.session for session in taken.sessions].count("runs") == min(number + 1, 2)
        sizes.append(len(taken.model_dump_json()))
    assert max(sizes) - min(sizes) < 50


async def test_keyed_write_happens_once(shell: Shell) -> None:
    key = job_key("keyed write")
    paths = await asyncio.gather(*(shell.sandbox.write_file("keyed", b"1", key=key) for _ in range(4)))
    assert len(set(paths)) == 1
    await shell.run("echo 2 > keyed")
    await shell.sandbox.write_file("keyed", b"1", key=key)
    assert await shell.text("cat keyed") == "2"
    assert key in await shell.sandbox.applied()


async def test_copy_of_a_copy(own: Shell, copies: Copies) -> None:
    await own.run("export A=1; mkdir d; cd d; echo 1 > f", name="one")
    first = await copies.copy(own, after=job_key("one"))
    await first.run("echo 2 >> f; export B=$A$A", name="two", after=job_key("one"))
    second = await copies.copy(first, after=job_key("two"))
    assert await second.text("cat f; echo $A $B; basename $PWD", after=job_key("two")) == "1\n2\n1 11\nd"
