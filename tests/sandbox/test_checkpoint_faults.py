"""Archives that nobody should trust, and workers that die on the way."""

import asyncio
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain
from pathlib import Path

import pytest
from zstandard import ZstdCompressor, ZstdDecompressor

from clotho.errors import JournalCorrupt, SandboxLost, SandboxUnavailable
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.supervised.archives import ArchiveTransfer
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.interface import Pipe
from clotho.sandbox.supervised.launch import lock_holder
from tests.sandbox.conftest import needs_root
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell, until, until_true
from tests.support import PATIENCE_SECONDS

Member = tuple[str, bytes, dict[str, object]]


def checkpoint_of(content: bytes, blob: Path) -> Restore:
    blob.write_bytes(ZstdCompressor().compress(content))
    taken = Checkpoint(
        digest=hashlib.sha256(content).hexdigest(),
        size=blob.stat().st_size,
        content_size=len(content),
        exact=True,
        fingerprint="",
        shell=None,
        sessions=(),
    )
    return Restore(taken, blob)


def archive(*members: Member) -> bytes:
    """Each with extended headers, as a supervisor writes them."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, kind, fields in members:
            member = tarfile.TarInfo(path)
            member.type, member.mode = kind, 0o755
            member.pax_headers = {"path": path, "mtime": "1.5"}
            for name, value in fields.items():
                setattr(member, name, value)
            if member.linkname:
                member.pax_headers["linkpath"] = member.linkname
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return file.getvalue()


def directory(path: str) -> Member:
    return path, tarfile.DIRTYPE, {}


def file(path: str, size: int = 3) -> Member:
    return path, tarfile.REGTYPE, {"size": size}


def link(path: str, target: str) -> Member:
    return path, tarfile.SYMTYPE, {"linkname": target}


def hard_link(path: str, target: str) -> Member:
    return path, tarfile.LNKTYPE, {"linkname": target}


WORK = directory("work")
HONEST = archive(
    WORK, directory("work/d"), file("work/d/f"), hard_link("work/g", "work/d/f"), link("work/l", "/etc")
)
HOSTILE = {
    "parent": archive(WORK, file("work/../escaped")),
    "parent directory": archive(WORK, directory("work/.."), file("work/../escaped")),
    "here": archive(WORK, directory("work/.")),
    "absolute": archive(WORK, file("/work/escaped")),
    "another root": archive(directory("etc"), file("etc/escaped")),
    "root that is a file": archive(file("work")),
    "without its directory": archive(WORK, file("work/d/f")),
    "through a link": archive(WORK, link("work/l", "/tmp"), file("work/l/escaped")),
    "through a link made directory": archive(WORK, link("work/l", "/tmp"), directory("work/l")),
    "same name twice": archive(WORK, file("work/f"), file("work/f")),
    "hard link out": archive(WORK, hard_link("work/f", "work/../../../etc/passwd")),
    "hard link to an absolute path": archive(WORK, hard_link("work/f", "/etc/passwd")),
    "hard link through a link": archive(WORK, link("work/l", "/etc"), hard_link("work/f", "work/l/passwd")),
    "hard link to nothing": archive(WORK, hard_link("work/f", "work/g")),
    "device": archive(WORK, ("work/null", tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3})),
    "empty name": archive(WORK, file("work//f")),
    "long name": archive(WORK, file("work/" + "n" * 300)),
    "no extended header": b"".join((HONEST[:1536], HONEST[2560:])),
    "cut short": HONEST[:-2048],
    "cut in a header": HONEST[:700],
    "noise": bytes(range(256)) * 40,
    "nothing": b"",
    "sparse beyond its size": archive(
        WORK,
        (
            "work/f",
            tarfile.REGTYPE,
            {"size": 1024, "pax_headers": {"path": "work/f", "GNU.sparse.realsize": "5", "mtime": "1"}},
        ),
    ),
}


SMALL = SandboxSpec(disk_mb=64)


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_archive_is_inert(
    backend: LocalBackend, spec: SandboxSpec, lease: str, folder: Path, tmp_path: Path, name: str
) -> None:
    restore = checkpoint_of(HOSTILE[name], tmp_path / "blob")
    with pytest.raises((JournalCorrupt, SandboxLost, SandboxUnavailable)):
        await backend.create(lease, spec, restore=restore)
    assert not [held for held in await backend.leases() if held.lease == lease]
    assert not [path for path, *names in os.walk(folder) if "escaped" in chain(*names)]


async def test_honest_archive_of_the_same_make_is_restored(
    local: LocalBackend, lease: str, tmp_path: Path
) -> None:
    shell = Shell(await local.create(lease, SMALL, restore=checkpoint_of(HONEST, tmp_path / "blob")))
    assert await shell.text("cat d/f g; echo; readlink l; stat -c '%h %U' g") == "xxxxxx\n/etc\n2 agent"
    await local.destroy(lease)


async def test_damaged_blob_is_refused(local: LocalBackend, lease: str, tmp_path: Path) -> None:
    """Each byte of it may be wrong, or missing."""
    restore = checkpoint_of(HONEST, tmp_path / "blob")
    whole = restore.blob.read_bytes()
    middle = len(whole) // 2
    for content in (
        whole[:middle],
        whole[:-1],
        whole[:middle] + bytes([whole[middle] ^ 0x55]) + whole[middle + 1 :],
        ZstdCompressor().compress(archive(WORK, file("work/other"))),
        b"",
    ):
        restore.blob.write_bytes(content)
        with pytest.raises(JournalCorrupt, match=restore.checkpoint.digest):
            await local.create(lease, SMALL, restore=restore)
    assert not [held for held in await local.leases() if held.lease == lease]


@needs_root
async def test_an_archive_that_does_not_fit_is_the_doing_of_commands(
    local: LocalBackend, lease: str, tmp_path: Path
) -> None:
    restore = checkpoint_of(archive(WORK, file("work/large", 100 << 20)), tmp_path / "blob")
    with pytest.raises(SandboxLost, match="commands filled") as raised:
        await local.create(lease, SMALL, restore=restore)
    assert raised.value.exhausted == "disk"
    assert not [held for held in await local.leases() if held.lease == lease]


# ---- death on the way ----

LARGE = "head -c 40M /dev/urandom > large"

TAKE = """
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
    shell = Shell(await backend.attach({lease!r}, {incarnation!r}))
    print(await shell.sandbox.checkpoint(Path({blob!r})))"""
"""The kernel kills it when it has written 2 MB of the checkpoint."""
RESTORE = """
    taken = Checkpoint.model_validate_json(Path({record!r}).read_text())
    await backend.create({lease!r}, SPECS[{kind!r}], restore=Restore(taken, Path({blob!r})))"""
WORKER = """
import asyncio, resource, signal
from pathlib import Path
from clotho.sandbox.checkpoints import Checkpoint, Restore
from tests.sandbox.conftest import BACKENDS, SPECS, be_patient
from tests.sandbox.shell import Shell
be_patient()
async def main():
    backend = BACKENDS[{kind!r}](Path({folder!r}) / "sandboxes-{kind}"){step}
asyncio.run(main())
"""


@asynccontextmanager
async def worker(step: str, **values: str) -> AsyncIterator[asyncio.subprocess.Process]:
    program = WORKER.replace("{step}", step).format(**values)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def size_of(files: Callable[[], Iterator[Path]]) -> int:
    sizes = []
    for path in files():
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return max(sizes, default=0)


async def test_worker_killed_in_a_checkpoint(
    backend: LocalBackend, own: Shell, copies: Copies, lease: str, kind: str, folder: Path
) -> None:
    await own.run(LARGE)
    tick = own.job("while :; do date +%N > ~/tick; sleep 0.01; done", session="tick")
    await own.sandbox.start(tick)
    values = {"incarnation": own.sandbox.incarnation, "blob": str(copies.blob), "folder": str(folder)}
    async with worker(TAKE, kind=kind, lease=lease, **values) as process:
        assert await process.wait() == -signal.SIGXFSZ
    assert size_of(lambda: copies.blob.parent.glob(".blob.*")) == 2 << 20, "killed in the middle"
    assert not copies.blob.exists()
    assert (await asyncio.wait_for(own.run("true"), PATIENCE_SECONDS)).code == 0
    ticks = 'a=$(cat ~/tick); while [ "$a" = "$(cat ~/tick)" ]; do sleep 0.05; done; echo on'
    assert await own.text(ticks) == "on"
    shell = await copies.copy(own)
    assert await shell.text("sha256sum < large") == await own.text("sha256sum < large")


async def test_worker_killed_in_a_restore(
    backend: LocalBackend,
    own: Shell,
    copies: Copies,
    spec: SandboxSpec,
    lease: str,
    kind: str,
    folder: Path,
    tmp_path: Path,
) -> None:
    await own.run(LARGE)
    taken = await copies.take(own)
    (tmp_path / "record").write_text(taken.model_dump_json())
    target = f"{lease}1"
    half, blob = tmp_path / "half", copies.blob.read_bytes()
    rest = blob[: len(blob) // 2]
    os.mkfifo(half)
    values = {"record": str(tmp_path / "record"), "blob": str(half), "folder": str(folder)}
    made = [path.name for path in (folder / f"sandboxes-{kind}" / "sandboxes").iterdir()]

    def new_files() -> Iterator[Path]:
        for path in (folder / f"sandboxes-{kind}" / "sandboxes").iterdir():
            if path.name not in made and not path.name.startswith("probe"):
                yield path / "disk" / "work" / "large"

    async with worker(RESTORE, kind=kind, lease=target, **values) as process:

        async def writing() -> bool:
            nonlocal rest
            assert process.returncode is None
            with suppress(BlockingIOError):
                rest = rest[os.write(feed, rest) :]
            return size_of(new_files) > 1 << 20

        feed = os.open(half, os.O_RDWR | os.O_NONBLOCK)
        await until(writing)
        process.kill()
        await process.wait()
        os.close(feed)
    assert not [held for held in await backend.leases() if held.lease == target]
    assert size_of(new_files) < 40 << 20, "killed in the middle"
    with pytest.raises(SandboxLost):
        await backend.attach(target, own.sandbox.incarnation)
    shell = Shell(await backend.create(target, spec, restore=Restore(taken, copies.blob)))
    assert await shell.text("sha256sum < large") == await own.text("sha256sum < large")
    again = await backend.create(target, spec, restore=Restore(taken, copies.blob))
    assert again.incarnation == shell.sandbox.incarnation
    await backend.destroy(target)


class HeldPipe:
    """A megabyte of its bytes is read at once, and the rest when `control` goes on."""

    def __init__(self, pipe: Pipe, control: "HeldControl") -> None:
        self._pipe, self._control, self._seen = pipe, control, 0

    def ready(self, milliseconds: int) -> bool:
        if self._seen > 1 << 20:
            self._control.held.set()
            self._control.goes_on.wait()
        return self._pipe.ready(milliseconds)

    def read(self, limit: int) -> bytes:
        content = self._pipe.read(limit)
        self._seen += len(content)
        return content

    def write(self, content: memoryview) -> int:
        return self._pipe.write(content)


class HeldControl(ControlDirectory):
    def __init__(self, seen: ControlDirectory) -> None:
        super().__init__(seen.path, seen.owner, seen.group)
        self.held, self.goes_on = threading.Event(), threading.Event()

    @contextmanager
    def pipe(self, path: str, *, writing: bool) -> Iterator[HeldPipe]:
        with super().pipe(path, writing=writing) as pipe:
            yield HeldPipe(pipe, self)


async def test_sandbox_killed_in_a_checkpoint(own: Shell, copies: Copies) -> None:
    await own.run(LARGE)
    own.sandbox.control = control = HeldControl(own.control)
    taking = asyncio.create_task(own.sandbox.checkpoint(copies.blob))
    try:
        await until_true(control.held.is_set)
        supervisor = lock_holder(own.control.alive_file)
        assert supervisor is not None
        os.kill(supervisor, signal.SIGKILL)
    finally:
        control.goes_on.set()
    with pytest.raises(SandboxLost):
        await taking
    assert not list(copies.blob.parent.glob("*blob*"))


class LatePipe:
    """Bytes on a slow way: what has been packed arrives only after its answer."""

    def __init__(self, pipe: Pipe, answered: Callable[[], bool]) -> None:
        self._pipe = pipe
        self._answered = answered
        self._late = False

    def ready(self, milliseconds: int) -> bool:
        was_late, self._late = self._late, self._answered()
        return was_late and self._pipe.ready(milliseconds)

    def read(self, limit: int) -> bytes:
        self._late = False
        return self._pipe.read(1024)

    def write(self, content: memoryview) -> int:
        return self._pipe.write(content)


class SlowControl(ControlDirectory):
    @contextmanager
    def pipe(self, path: str, *, writing: bool) -> Iterator[LatePipe]:
        done = path.replace("stream", "done")
        with super().pipe(path, writing=writing) as pipe:
            yield LatePipe(pipe, lambda: self.exists(done))


async def test_an_archive_is_read_to_its_end_after_its_answer(own: Shell, tmp_path: Path) -> None:
    await own.run("head -c 100K /dev/urandom > file")
    sandbox = own.sandbox
    control = SlowControl(own.control.path, own.control.owner, own.control.group)
    for number, seen_through in enumerate((sandbox.control, control)):
        transfer = ArchiveTransfer(seen_through, sandbox.incarnation, f"{number:032}")
        fields = {"max": str(1 << 30), "timeout_ms": "60000"}
        packed = await asyncio.to_thread(
            transfer.pack, fields, sandbox.layout.archived, tmp_path / str(number)
        )
        assert packed.word == "ok"
    whole, late = (ZstdDecompressor().decompressobj().decompress((tmp_path / n).read_bytes()) for n in "01")
    assert late == whole


class EndedReader:
    """A pipe whose reader, a child of the supervisor, is killed once it has something."""

    def __init__(self, pipe: Pipe, supervisor: int) -> None:
        self._pipe = pipe
        self._supervisor = supervisor

    def ready(self, milliseconds: int) -> bool:
        return self._pipe.ready(milliseconds)

    def read(self, limit: int) -> bytes:
        return self._pipe.read(limit)

    def write(self, content: memoryview) -> int:
        for child in Path(f"/proc/{self._supervisor}/task/{self._supervisor}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        # SIGPIPE's errno comes once the kernel has closed the reader's end
        while taken := self._pipe.write(content[:1]):
            content = content[taken:]
        return 0


class EndingControl(ControlDirectory):
    @contextmanager
    def pipe(self, path: str, *, writing: bool) -> Iterator[Pipe]:
        supervisor = lock_holder(self.alive_file)
        assert supervisor is not None
        with super().pipe(path, writing=writing) as pipe:
            yield EndedReader(pipe, supervisor)


async def test_an_archive_whose_reader_is_killed_is_not_damaged(own: Shell, tmp_path: Path) -> None:
    sandbox = own.sandbox
    control = EndingControl(own.control.path, own.control.owner, own.control.group)
    members: list[Member] = [(f"{n}", tarfile.REGTYPE, {"size": 100_000}) for n in range(50)]
    restore = checkpoint_of(archive(*members), tmp_path / "blob")
    transfer = ArchiveTransfer(control, sandbox.incarnation, "0" * 32)
    with pytest.raises(SandboxUnavailable):
        await asyncio.to_thread(transfer.unpack, restore, sandbox.layout.archived)


async def test_checkpoint_of_a_sandbox_that_is_gone(
    backend: LocalBackend, own: Shell, copies: Copies, lease: str
) -> None:
    await backend.destroy(lease)
    with pytest.raises(SandboxLost):
        await copies.take(own)
    with pytest.raises(SandboxLost):
        await own.sandbox.manifest()
