"""Sandboxes behind a relay: what becomes of commands when it or its worker ends, and what it refuses."""

import asyncio
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import docker
import docker.errors
import pytest

from clotho.errors import InvalidInput, SandboxLost, SandboxUnavailable, WorkspaceRefused
from clotho.identifiers.ids import job_key
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.machine import ContainerMachine
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.control import RelayedControl
from clotho.plugins.containers.relay.instances import ENDS, MADE_BY_RELAY, OF_THE_BACKEND
from clotho.plugins.containers.relay.loop import blocking
from clotho.plugins.containers.relay.machine import Found
from clotho.plugins.containers.relay.records import RelayFolder, scope
from clotho.plugins.containers.relay.stream import MAGIC, MOST_DATA, RelayStream, StreamEnded
from clotho.sandbox.backend import JobState, SandboxSpec
from clotho.sandbox.supervised.launch import lock_holder
from clotho.sandbox.supervisor import supervisor_path
from tests.machine_image import IMAGE
from tests.sandbox.conftest import SPECS
from tests.sandbox.dying_engine import dying_engine
from tests.sandbox.engine_elsewhere import LikeACloud, link_with_late_ends, relayed_backend
from tests.sandbox.shell import Shell, until

WAITING = "echo first >> /work/begun; while ! test -e /work/go; do sleep 0.01; done; cat /work/begun"
TOKEN = b"0" * 32
OF_ANOTHER = "clotho-another-machine"


@pytest.fixture
def relayed(engine_elsewhere: str, folder: Path) -> RelayedBackend:
    return relayed_backend(folder / "sandboxes-relay")


@pytest.fixture
def wanted() -> SandboxSpec:
    return SPECS["relay"]


@pytest.fixture
async def shell(relayed: RelayedBackend, wanted: SandboxSpec, lease: str) -> AsyncIterator[Shell]:
    yield Shell(await relayed.create(lease, wanted))
    await relayed.destroy(lease)


def cut(shell: Shell) -> None:
    """End the stream, as a network does that goes."""
    control = shell.sandbox.control
    assert isinstance(control, RelayedControl)
    blocking(control.relay.close())


def machine_of(backend: RelayedBackend, lease: str) -> str:
    return RelayFolder.of_lease(backend._root, lease).machine


async def test_a_command_outlives_its_stream_and_runs_once(shell: Shell) -> None:
    job = shell.job(WAITING)
    await shell.sandbox.start(job)
    waiting = asyncio.create_task(shell.sandbox.wait(job.key, 120))
    await shell.text("while ! test -e /work/begun; do sleep 0.01; done")
    cut(shell)
    await shell.sandbox.start(job)
    cut(shell)
    await shell.run("touch /work/go")
    assert (await waiting).exit_code == 0
    cut(shell)
    assert await shell.sandbox.output(job.key) == b"first\n"


async def test_a_command_outlives_its_worker(
    relayed: RelayedBackend, shell: Shell, folder: Path, lease: str
) -> None:
    driver = f"""
import asyncio
from pathlib import Path
from tests.sandbox.conftest import be_patient
from tests.sandbox.engine_elsewhere import LikeACloud, link_with_late_ends, relayed_backend
from tests.sandbox.shell import Shell
be_patient()
async def main():
    backend = relayed_backend(Path({str(folder)!r}) / "sandboxes-relay")
    shell = Shell(await backend.attach({lease!r}, {shell.sandbox.incarnation!r}))
    await shell.run({WAITING!r}, name="of another")
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", driver]) as process:

        async def begun() -> bool:
            return (await shell.sandbox.read_file("/work/begun", 100)).error is None

        await until(begun)
        process.kill()
    await shell.run("touch /work/go")
    job = shell.job(WAITING, name="of another")
    await shell.sandbox.start(job)
    assert (await shell.sandbox.wait(job_key("of another"), 120)).exit_code == 0
    assert await shell.sandbox.output(job.key) == b"first\n"


async def test_a_container_that_is_killed_is_a_lost_sandbox(
    relayed: RelayedBackend, shell: Shell, wanted: SandboxSpec, lease: str
) -> None:
    job = shell.job("sleep 600")
    await shell.sandbox.start(job)
    waiting = asyncio.create_task(shell.sandbox.wait(job.key, 300))
    docker.from_env().containers.get(machine_of(relayed, lease)).kill()
    with pytest.raises(SandboxLost):
        assert (await waiting).state is not JobState.LOST
    with pytest.raises(SandboxLost):
        await relayed.attach(lease, shell.sandbox.incarnation)
    again = await relayed.create(lease, wanted)
    assert again.incarnation != shell.sandbox.incarnation


async def test_commands_reach_neither_control_directory_nor_relay(shell: Shell) -> None:
    await shell.sandbox.write_file("/work/secret", b"")
    tried = await shell.text(
        "ls -A /.control; grep -c control /proc/mounts; cat /proc/1/environ; ls /proc/1/fd /proc/1/root/; "
        "for each in /proc/[0-9]*; do grep -q relay $each/cmdline && ls $each/fd $each/root/ $each/cwd/; done; "
        "cp /bin/true /.clotho/supervisor; rm /.clotho/supervisor; mv /.clotho /gone; umount /.clotho; "
        "mount --bind /bin /.clotho; echo end"
    )
    assert tried.splitlines()[0] == "0"
    assert tried.splitlines()[-1] == "end"
    assert "supervisor" not in tried.replace("/.clotho/supervisor", "")
    assert (await shell.run("true")).code == 0


async def test_a_socket_gives_the_control_directory_to_nobody_without_the_token(shell: Shell) -> None:
    asked = """
import array, socket
ours, theirs = socket.socketpair()
asking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for token in (b"0" * 32, b"", b"\\0" * 32, b"0" * 31, b"0" * 5000):
    asking.sendmsg([token], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))],
                   0, "\\0clotho-supervisor")
theirs.close()
print(ours.recv(1))
"""
    assert await shell.text(f"python3 - <<'END'\n{asked}\nEND") == "b''"


async def test_a_socket_keeps_no_descriptor_of_a_command(shell: Shell) -> None:
    supervisor = lock_holder(shell.control.alive_file)
    before = len(os.listdir(f"/proc/{supervisor}/fd"))
    sent = """
import array, socket
asking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range(100):
    given = array.array("i", [0, 1])
    asking.sendmsg([b"0" * 32], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)], 0, "\\0clotho-supervisor")
print("given")
"""
    assert await shell.text(f"python3 - <<'END'\n{sent}\nEND") == "given"
    assert len(os.listdir(f"/proc/{supervisor}/fd")) < before + 50


async def test_commands_that_end_every_relay_lose_their_sandbox(shell: Shell) -> None:
    """A rollout isn't waited for because of what its commands do: it is typed, and counts against them."""
    job = shell.job("while :; do pkill -KILL -f 'supervisor relay'; done", session="killer")
    with pytest.raises(SandboxLost):
        await shell.sandbox.start(job)
        while True:
            with suppress(SandboxUnavailable):  # an engine may fail to start one that is killed at once
                await shell.sandbox.read_file("x", 1)


async def test_an_engine_elsewhere_is_reached_through_a_relay_without_being_told(
    engine_elsewhere: str, tmp_path: Path
) -> None:
    here = ContainerBackend(tmp_path, f"unix://{tmp_path}/podman.sock")
    there = ContainerBackend(tmp_path, engine_elsewhere)
    plain, by_hand = DockerConfig(image="x"), DockerConfig(image="x", relay=True)
    other_kernel = DockerConfig(image="x", runtime="runsc")
    assert here.makes(plain)
    assert not here.makes(by_hand)
    assert not here.makes(other_kernel)
    assert not there.makes(plain)


async def test_gpus_are_refused_where_the_engine_ignores_them(
    relayed: RelayedBackend, wanted: SandboxSpec, lease: str
) -> None:
    with pytest.raises(InvalidInput, match="can't give sandboxes GPUs"):
        await relayed.create(lease, with_options(wanted, gpus="all"))
    assert not relayed.holds(lease)


async def test_more_than_a_verifier_is_waited_for_is_refused(
    relayed: RelayedBackend, wanted: SandboxSpec, lease: str
) -> None:
    shell = Shell(await relayed.create(lease, with_options(wanted, system_changes_mb=8)))
    await shell.run("head -c 16M /dev/zero > /usr/large")
    with pytest.raises(WorkspaceRefused, match="commands wrote 16 MiB beside the image: more than 8 MiB"):
        await relayed.open_verifier(lease, 0, {})
    await relayed.destroy(lease)


def with_options(spec: SandboxSpec, **options: object) -> SandboxSpec:
    backend = DockerConfig.model_validate({**spec.backend.model_dump(), **options})
    return spec.model_copy(update={"backend": backend})


@pytest.fixture
def program(
    engine_elsewhere: str, relayed: RelayedBackend, shell: Shell, lease: str
) -> Iterator[tuple[str, Path]]:
    """The volume with the supervisor, and its folder, with a sandbox that has started from it."""
    mounts = docker.from_env().api.inspect_container(machine_of(relayed, lease))["Mounts"]
    (mount,) = (each for each in mounts if str(each.get("Name")).startswith("clotho-supervisor-"))
    yield mount["Name"], Path(mount["Source"])


async def test_another_worker_leaves_the_supervisor_as_it_is(
    relayed: RelayedBackend, wanted: SandboxSpec, program: tuple[str, Path]
) -> None:
    """Containers may be starting from it."""
    _, folder = program
    before = {path: path.stat().st_ctime_ns for path in folder.iterdir()}
    assert len(before) == 3, "the supervisor, its filter, and what tells that both are whole"
    of_another_worker = relayed_backend(relayed._root)
    await of_another_worker.create("another/r0/lease/0", wanted)
    await of_another_worker.destroy("another/r0/lease/0")
    assert {path: path.stat().st_ctime_ns for path in folder.iterdir()} == before


async def test_a_volume_that_lost_the_supervisor_is_written_anew(
    relayed: RelayedBackend, wanted: SandboxSpec, program: tuple[str, Path]
) -> None:
    """As when it was pruned, and an engine made an empty one in its place."""
    _, folder = program
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(SandboxUnavailable):
        await relayed.create("another/r0/lease/0", wanted)
    assert await Shell(await relayed.create("another/r0/lease/0", wanted)).text("echo here") == "here"
    await relayed.destroy("another/r0/lease/0")


async def test_a_volume_is_written_over_a_link_that_brings_an_archives_end_late(
    engine_elsewhere: str, wanted: SandboxSpec, program: tuple[str, Path], tmp_path: Path
) -> None:
    _, folder = program
    for path in folder.iterdir():
        path.unlink()
    async with link_with_late_ends(engine_elsewhere) as address:
        backend = RelayedBackend(tmp_path, ContainerMachine(address, tmp_path / "locks"))
        shell = Shell(await backend.create("late/r0/lease/0", wanted))
        assert await shell.text("echo here") == "here"
        await backend.destroy("late/r0/lease/0")
        await backend.close()


async def test_a_worker_that_dies_while_it_writes_the_supervisor_leaves_nothing(
    engine: str, engine_elsewhere: str, tmp_path: Path, wanted: SandboxSpec, lease: str
) -> None:
    root = tmp_path / "relayed"
    with dying_engine(tmp_path / "engine.sock", engine) as dying:
        behind = RelayedBackend(root, ContainerMachine(dying.address, root / "locks"))
        dying.die_at("/archive", "before")
        with pytest.raises(SandboxUnavailable):
            await behind.create(lease, wanted)
    after = RelayedBackend(root, ContainerMachine(engine, root / "locks"))
    made_here = {"label": [f"{OF_THE_BACKEND}={scope(root)}"]}
    assert len(docker.from_env().containers.list(all=True, filters=made_here)) == 1
    await after.reap()
    assert docker.from_env().containers.list(all=True, filters=made_here) == []


class Remade(ContainerMachine):
    """An engine on which another store makes a machine that had ended anew, right after it was listed."""

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        found = await super().list(labels)
        for each in found if labels == MADE_BY_RELAY else ():
            if not each.running and each.name == OF_ANOTHER:
                sdk = docker.from_env()
                sdk.containers.get(each.id).remove()
                sdk.containers.run(IMAGE, ["sleep", "600"], name=each.name, labels=each.labels, detach=True)
        return found


async def test_only_ended_machines_of_other_stores_are_reaped(engine: str, tmp_path: Path) -> None:
    (tmp_path / "sandboxes").mkdir()
    sdk, labels = docker.from_env(), {**MADE_BY_RELAY, OF_THE_BACKEND: "another", ENDS: "0"}
    sdk.containers.create(IMAGE, ["true"], name=OF_ANOTHER, labels=labels)
    try:
        await RelayedBackend(tmp_path, Remade(engine, tmp_path / "locks")).reap()
        assert sdk.containers.get(OF_ANOTHER).status == "running"
        sdk.containers.get(OF_ANOTHER).kill()
        sdk.containers.get(OF_ANOTHER).wait()
        backend = RelayedBackend(tmp_path, ContainerMachine(engine, tmp_path / "locks"))
        assert await backend.reap() == (OF_ANOTHER,)
        assert not sdk.containers.list(all=True, filters={"name": OF_ANOTHER})
    finally:
        with suppress(docker.errors.NotFound):
            sdk.containers.get(OF_ANOTHER).remove(force=True)


async def test_an_image_that_is_not_there_is_told(relayed: RelayedBackend, lease: str) -> None:
    spec = SandboxSpec(backend=DockerConfig(image="localhost/none", pull="never"))
    with pytest.raises(InvalidInput, match="no image"):
        await relayed.create(lease, spec)
    assert await relayed.reap() == ()


@pytest.mark.parametrize("user", ["0", "nobody"])
async def test_a_supervisor_beside_other_processes(
    engine_elsewhere: str, tmp_path: Path, lease: str, user: str
) -> None:
    backend = RelayedBackend(tmp_path, LikeACloud(engine_elsewhere, tmp_path / "locks"))
    spec = SandboxSpec(backend=DockerConfig(image=IMAGE, workdir="/work", user=user))
    shell = Shell(await backend.create(lease, spec))
    assert await shell.text("id -u; pwd; echo made > file; echo $HOME") == (
        f"{0 if user == '0' else 65534}\n/work\n/home/agent"
    )
    await shell.sandbox.write_file("other", b"written")
    verify = Shell(await backend.open_verifier(lease, 0, {"check": b"hidden "}))
    assert await verify.text("cat $CLOTHO_HIDDEN_FILES/check file other") == "hidden made\nwritten"
    await backend.destroy(lease)


# ---- the stream ----


class Piped:
    """A channel to the relay's program as a process of this host, where there is no supervisor."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process, self._out, self._in = process, process.stdin, process.stdout

    @classmethod
    async def open(cls) -> "Piped":
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(supervisor_path(), "relay", stdin=pipe, stdout=pipe))

    async def send(self, content: bytes) -> None:
        self._out.write(content)

    async def receive(self) -> bytes:
        return await self._in.read(65536)

    async def close(self) -> None:
        self._out.close()
        await self.process.wait()


class Hostile:
    """A channel to what answers as a sandbox's commands might, in a relay's place."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self._greeted = False
        self.asked = asyncio.Event()

    async def send(self, content: bytes) -> None:
        self.asked.set()

    async def receive(self) -> bytes:
        if self._greeted:
            await self.asked.wait()
        content = self._answers.pop(0) if self._answers else b""
        self._greeted = content == MAGIC
        return content

    async def close(self) -> None:
        return None


async def test_a_relay_without_a_supervisor_says_so() -> None:
    channel = await Piped.open()
    with pytest.raises(SandboxLost, match="refused"):
        await RelayStream(channel).greet(TOKEN)
    assert channel.process.returncode == 0


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">IQB", 9, 1, ord("A")),
        struct.pack(">IQB", 1 << 31, 1, ord("H")) + TOKEN,
        struct.pack(">IQB", 3, 1, ord("H")),
        struct.pack(">IQB", 9 + 31, 1, ord("H")) + TOKEN[1:],
    ],
    ids=["before the greeting", "too long", "too short", "half a token"],
)
async def test_a_relay_ends_with_what_breaks_the_rules(frame: bytes) -> None:
    channel = await Piped.open()
    assert await channel.receive() == MAGIC
    await channel.send(frame)
    assert await channel.receive() == b""
    assert await channel.process.wait() == 1


@pytest.mark.parametrize(
    "answers",
    [
        (b"",),
        (b"bash: no such program\n",),
        (b"x" * 100_000, b"x"),
        (MAGIC, struct.pack(">IQB", MOST_DATA + 10, 1, 0)),
        (MAGIC, struct.pack(">IQB", 8, 1, 0)),
        (MAGIC, struct.pack(">IQB", 9, 2, 0)),
        (MAGIC, struct.pack(">IQB", 9, 1, 5)),
    ],
    ids=["nothing", "a shell's words", "noise", "too long", "too short", "of another's", "an error"],
)
async def test_what_is_no_relay_is_an_ended_stream(answers: tuple[bytes, ...]) -> None:
    with pytest.raises(StreamEnded) as raised:
        await RelayStream(Hostile(*answers)).greet(TOKEN)
    assert isinstance(raised.value, SandboxUnavailable)
