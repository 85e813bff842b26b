"""Sandboxes behind a stream: what becomes of calls when it ends, and what each side refuses."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clotho.environment.workspace import LARGEST_FILE
from clotho.errors import FileRefused, InvalidInput, JournalCorrupt, SandboxLost, SandboxUnavailable
from clotho.plugins.ssh.remote import link
from clotho.plugins.ssh.remote.backend import Opener, RemoteBackend
from clotho.plugins.ssh.remote.calls import RemoteCall
from clotho.plugins.ssh.remote.connection import Connection, Stream
from clotho.plugins.ssh.remote.link import MAGIC, MAX_MESSAGE_BYTES, PIECE_BYTES, Link, Received
from clotho.plugins.ssh.remote.messages import RemoteError, pack, unpack
from clotho.plugins.ssh.remote.server import serve
from clotho.sandbox.backend import JobState, SandboxBackend, SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import SPECS
from tests.sandbox.remote_host import PipedHost
from tests.sandbox.shell import Shell
from tests.sandbox.tool_calls import Calls
from tests.support import PATIENCE_SECONDS


@pytest.fixture
def host(folder: Path) -> PipedHost:
    return PipedHost(folder / "sandboxes-remote")


@pytest.fixture
async def far(host: PipedHost, lease: str) -> AsyncIterator[RemoteBackend]:
    backend = RemoteBackend(("local",), host.open)
    yield backend
    await backend.destroy(lease)
    await backend.close()


@pytest.fixture
def wanted() -> SandboxSpec:
    return SPECS["remote"]


async def test_a_command_goes_on_when_its_server_is_killed(
    host: PipedHost, far: RemoteBackend, wanted: SandboxSpec, lease: str
) -> None:
    shell = Shell(await far.create(lease, wanted))
    job = shell.job("echo first; while ! test -e go; do sleep 0.01; done; echo last")
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"first")
    waiting = asyncio.create_task(shell.sandbox.wait(job.key, PATIENCE_SECONDS))
    await shell.text("true")
    os.kill(host.started[-1].pid, signal.SIGKILL)
    with pytest.raises(SandboxUnavailable, match="the server ended"):
        await waiting
    await shell.sandbox.write_file("go", b"")  # the same instance, through another server
    ended = await shell.ended(job.key)
    assert (ended.state, ended.output) == (JobState.EXITED, b"first\nlast\n")
    assert len(host.started) == 2
    again = await far.attach(lease, shell.sandbox.incarnation)
    assert await again.output(job.key) == ended.output


async def test_an_instance_that_was_replaced_is_lost(
    host: PipedHost, far: RemoteBackend, wanted: SandboxSpec, lease: str
) -> None:
    shell = Shell(await far.create(lease, wanted))
    await far.destroy(lease)
    await far.create(lease, wanted)
    os.kill(host.started[-1].pid, signal.SIGKILL)
    await host.started[-1].wait()
    with pytest.raises(SandboxLost):
        for _ in range(2):  # the first call may be what finds the stream closed
            try:
                await shell.sandbox.applied()
            except SandboxUnavailable:
                continue


async def test_a_sandbox_whose_host_has_to_be_mended_is_lost_and_no_tool_result(
    host: PipedHost, wanted: SandboxSpec, lease: str
) -> None:
    async def opened() -> Connection:
        if host.started:
            raise InvalidInput("the host has no module clotho")
        return await host.open()

    backend = RemoteBackend(("local",), opened)
    sandbox = await backend.create(lease, wanted)
    os.kill(host.started[-1].pid, signal.SIGKILL)
    await host.started[-1].wait()
    with pytest.raises(SandboxLost, match="no module clotho"):
        for _ in range(2):  # the first call may be what finds the stream closed
            try:
                await Calls(sandbox)("terminal", command="true")
            except SandboxUnavailable:
                continue
    for asked in (
        backend.open_verifier(lease, 1, {}),
        backend.verify_in_place(lease, sandbox.incarnation),
        backend.renew(lease, 60),
    ):
        with pytest.raises(SandboxLost, match="no module clotho"):
            await asked
    with pytest.raises(InvalidInput, match="no module clotho"):
        await backend.create(f"{lease}-new", wanted)
    again = RemoteBackend(("local",), host.open)
    with pytest.raises(InvalidInput, match="hidden file"):  # an answer stays what it is
        await again.open_verifier(lease, 1, {"../out": b""})
    await again.destroy(lease)
    await again.close()


async def test_a_call_that_is_given_up_is_given_up_there_and_holds_up_no_other(
    far: RemoteBackend, wanted: SandboxSpec, lease: str
) -> None:
    shell = Shell(await far.create(lease, wanted))
    job = shell.job("sleep 1000")
    await shell.sandbox.start(job)
    waits = [asyncio.create_task(shell.sandbox.wait(job.key, PATIENCE_SECONDS)) for _ in range(200)]
    assert await shell.text("echo meanwhile") == "meanwhile"
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    assert await shell.text("echo after") == "after"


async def test_long_messages_come_whole_beside_short_ones(
    far: RemoteBackend, wanted: SandboxSpec, lease: str
) -> None:
    shell = Shell(await far.create(lease, wanted))
    content = os.urandom(8 << 20)
    written, said = await asyncio.gather(shell.sandbox.write_file("long", content), shell.text("echo short"))
    assert (written, said) == ("/work/long", "short")
    assert (await shell.sandbox.read_file("long", len(content))).content == content


async def test_a_file_is_read_whole_up_to_the_largest_that_may_be(
    far: RemoteBackend, wanted: SandboxSpec, lease: str
) -> None:
    shell = Shell(await far.create(lease, wanted))
    size = 130 << 20
    await shell.text(f"truncate -s {size} large")
    found = await shell.sandbox.read_file("large", LARGEST_FILE)
    assert (found.error, len(found.content)) == (None, size)
    assert LARGEST_FILE < MAX_MESSAGE_BYTES


async def test_a_file_that_is_too_long_for_the_stream_is_refused(
    far: RemoteBackend, wanted: SandboxSpec, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.plugins.ssh.remote.instance.MAX_WRITTEN_BYTES", 1 << 10)
    shell = Shell(await far.create(lease, wanted))
    with pytest.raises(FileRefused, match="large: 1025 bytes are more"):
        await shell.sandbox.write_file("large", b"." * 1025)
    await shell.sandbox.write_file("small", b"." * 1024)


async def test_an_answer_that_cannot_be_sent_is_an_error(
    wanted: SandboxSpec, folder: Path, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "MAX_MESSAGE_BYTES", 1 << 20)
    local = LocalBackend(folder / "sandboxes-served")
    async with served(local) as stream:
        backend = RemoteBackend(("local",), stream)
        shell = Shell(await backend.create(lease, wanted))
        await shell.text("truncate -s 2M large")
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(SandboxUnavailable, match="too long for a remote sandbox"):
                await shell.sandbox.read_file("large", LARGEST_FILE)
        assert await shell.text("echo after") == "after"
        await backend.destroy(lease)
        await backend.close()


async def test_a_file_that_cannot_be_written_fails_its_own_call_alone(
    host: PipedHost, far: RemoteBackend, wanted: SandboxSpec, lease: str, folder: Path
) -> None:
    shell = Shell(await far.create(lease, wanted))
    job = shell.job("while ! test -e go; do sleep 0.01; done")
    await shell.sandbox.start(job)
    waiting = asyncio.create_task(shell.sandbox.wait(job.key, PATIENCE_SECONDS))
    for size in ("1", "1M"):  # one that fails when it is closed, and one in the middle
        await shell.text(f"head -c {size} /dev/urandom > noise")
        with pytest.raises(SandboxUnavailable, match="No space left"):
            await shell.sandbox.checkpoint(Path("/dev/full"))
    blob = folder / f"{lease.replace('/', '-')}-blob"
    taken = await shell.sandbox.checkpoint(blob)
    assert isinstance(taken, Checkpoint)
    _, most = resource.prlimit(host.started[0].pid, resource.RLIMIT_FSIZE)
    resource.prlimit(host.started[0].pid, resource.RLIMIT_FSIZE, (64 << 10, most))
    with pytest.raises(SandboxUnavailable, match="File too large"):
        await far.create(f"{lease}-again", wanted, restore=Restore(taken, blob))
    await shell.sandbox.write_file("go", b"")
    assert (await waiting).state is JobState.EXITED
    assert len(host.started) == 1


async def test_what_still_comes_for_a_call_that_was_given_up_is_dropped(folder: Path) -> None:
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    sending = Link(*await asyncio.open_connection(sock=far), lambda _: None)
    receiving = Link(reader, writer, lambda number: folder / f"given-up-{number}", lambda number: number == 2)
    for number in (1, 2):
        await sending.send(number, b"message", Path(__file__))
    sending.close()
    assert [each async for each in receiving.received()] == [Received(2, b"message")]
    assert (folder / "given-up-2").read_bytes() == Path(__file__).read_bytes()
    assert not (folder / "given-up-1").exists()
    receiving.close()


async def test_many_begin_on_one_stream(host: PipedHost, wanted: SandboxSpec) -> None:
    backend = RemoteBackend(("local",), host.open)
    found = await asyncio.gather(*(backend.leases() for _ in range(50)))
    assert len(found) == 50
    assert len(host.started) == 1
    await backend.close()


@asynccontextmanager
async def served(backend: SandboxBackend) -> AsyncIterator[Opener]:
    """Opens a stream to a server of `backend` in this process."""
    ends = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ends[0])
    server = asyncio.create_task(serve(backend, *await asyncio.open_connection(sock=ends[1])))

    async def close() -> None:
        await server

    async def why_ended() -> SandboxUnavailable:
        return SandboxUnavailable("the server ended")

    async def opened() -> Connection:
        return await Connection(Stream(reader, writer, why_ended, close)).open()

    try:
        yield opened
    finally:
        writer.close()
        await server


class Canned:
    """A server that says what it is told to."""

    def __init__(self, *said: bytes) -> None:
        self.said = said

    async def open(self) -> Connection:
        reader = asyncio.StreamReader()
        for each in self.said:
            reader.feed_data(each)
        reader.feed_eof()

        async def why_ended() -> SandboxUnavailable:
            return SandboxUnavailable("it ended")

        async def close() -> None:
            return None

        return await Connection(Stream(reader, Unheard(), why_ended, close)).open()


class Unheard:
    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"Last login: today\n" * 200,
        b"x" * PIECE_BYTES,
        MAGIC + b"1\n" + b"\xff" * 13,
        MAGIC + b"1\n" + bytes(9) + b"\xff" * 4,
        MAGIC + b"1\n" + b"\x01" + bytes(8) + (4).to_bytes(4, "big") + b"\0\0\xff\xff",
        MAGIC + b"1\n" + b"\x01" + bytes(8) + (6).to_bytes(4, "big") + b"\0\0\0\x02[]",
        MAGIC + b"1\n" + b"\x01" + bytes(8) + (3).to_bytes(4, "big") + b"\0",
    ],
)
async def test_a_server_that_breaks_the_rules_is_an_outage(said: bytes) -> None:
    with pytest.raises(SandboxUnavailable):
        await RemoteBackend(("local",), Canned(said).open).system("any")


async def test_a_server_of_another_version_has_to_be_mended() -> None:
    backend = RemoteBackend(("local",), Canned(b"noise of a shell\n", MAGIC + b"99\n").open)
    with pytest.raises(InvalidInput, match="speaks version 99"):
        await backend.leases()


@pytest.mark.parametrize(
    "call",
    [
        RemoteCall(instance=None, verb="__init__", arguments={}),
        RemoteCall(instance=None, verb="close", arguments={}),
        RemoteCall(instance=None, verb="renew", arguments={"lease": "a", "more": 1}),
    ],
)
async def test_a_server_takes_no_calls_but_a_backends(host: PipedHost, call: RemoteCall) -> None:
    connection = await host.open()
    answer = await connection.call(call)
    assert answer.error is not None
    assert answer.error.kind == "InvalidInput"
    assert (await connection.call(RemoteCall(instance="0", verb="kill", arguments={}))).unknown_instance
    await connection.close()


def test_bytes_come_back_at_any_depth() -> None:
    value = {"a": [b"", b"\0\xff" * 5, {"b": b"end"}], "c": {"\0bytes": "text"}, "d": "\udc80"}
    assert unpack(pack(value)) == value


def test_errors_keep_their_class_and_fields() -> None:
    lost = RemoteError.of(SandboxLost("gone", exhausted="memory")).raised()
    assert isinstance(lost, SandboxLost)
    assert (str(lost), lost.exhausted) == ("gone", "memory")
    assert isinstance(RemoteError.of(JournalCorrupt("a key")).raised(), JournalCorrupt)
    defect = RemoteError.of(ValueError("unforeseen")).raised()
    assert isinstance(defect, SandboxUnavailable)
    assert isinstance(RemoteError(kind="SystemExit", message="x").raised(), SandboxUnavailable)
