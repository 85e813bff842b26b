"""Sandboxes in containers, beside what the conformance suite asks of every backend."""

import asyncio
import io
import os
import secrets
import signal
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import docker
import pytest

from clotho.errors import (
    InvalidInput,
    IsolationUnavailable,
    SandboxLost,
    SandboxUnavailable,
    WorkspaceRefused,
)
from clotho.plugins.containers import host, leftovers
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.folders import ContainerFolder
from clotho.plugins.containers.holdings import LABEL, LEASE_LABEL
from clotho.plugins.containers.images import build
from clotho.sandbox.backend import JobState, SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint
from clotho.sandbox.supervised import archives
from clotho.sandbox.supervised.launch import lock_holder
from tests.machine_image import IMAGE
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell, until
from tests.support import PATIENCE_SECONDS, SHARED_LEASE

Made = Callable[..., Awaitable[Shell]]


def spec_of(**config: Any) -> SandboxSpec:
    return SandboxSpec(backend=DockerConfig(**{"image": IMAGE, "pull": "never"} | config), memory_mb=128)


@pytest.fixture
def containers(engine: str, folder: Path) -> ContainerBackend:
    return ContainerBackend(folder / "containers", engine)


@pytest.fixture
def sdk(engine: str) -> docker.DockerClient:
    return Engine(engine).client


@pytest.fixture
async def made(containers: ContainerBackend, lease: str, sdk: docker.DockerClient) -> AsyncIterator[Made]:
    """Makes the test's sandbox with fields of its configuration; nothing is left of it afterwards."""

    async def make(**config: Any) -> Shell:
        return Shell(await containers.create(lease, spec_of(**config)))

    yield make
    await containers.destroy(lease)
    name = container_of(containers, lease)
    assert not [each.name for each in all_in(sdk) if each.name.startswith(name)]
    assert not [tag for each in sdk.images.list() for tag in each.tags if name in tag]


def all_in(sdk: docker.DockerClient) -> list[Any]:
    """Also those that have ended; one that is removed meanwhile is none."""
    return list(sdk.containers.list(all=True, ignore_removed=True))


def container_of(containers: ContainerBackend, lease: str) -> str:
    return ContainerFolder.of_lease(containers._root, lease).container


# ---- files ----


async def test_the_workspace_begins_as_the_images_working_directory(
    made: Made, containers: ContainerBackend, lease: str, tmp_path: Path
) -> None:
    shell = await made()
    assert await shell.text("pwd; ls; cat from-the-image; echo $FROM_IMAGE") == (
        "/app\nempty\nfrom-the-image\n1\n1"
    )
    assert (await shell.sandbox.read_file("/work/from-the-image", 9)).content == b"1\n"
    await shell.run("rm from-the-image; echo new > new; echo kept > ~/kept")
    copies = Copies(containers, spec_of(), lease, tmp_path)
    again = await copies.copy(shell)
    assert await again.text("ls; cat ~/kept") == "empty\nnew\nkept"
    await copies.destroy()


async def test_a_verifier_sees_what_the_agent_left_anywhere(
    made: Made, containers: ContainerBackend, lease: str
) -> None:
    shell = await made()
    await shell.run("echo here > file; echo there > /etc/there; mkdir /opt; echo 1 > /opt/x; echo 2 > /run/y")
    verify = Shell(await containers.open_verifier(lease, 0, {"hidden": b"h"}))
    assert await verify.text("cat file /etc/there /opt/x; ls /run/y") == (
        "here\nthere\n1\nls: cannot access '/run/y': No such file or directory"
    )
    await verify.run("echo changed > /etc/there")
    later = Shell(await containers.open_verifier(lease, 1, {}))
    assert await later.text("cat file /etc/there") == "here\nthere"


async def test_a_verifier_in_the_image_sees_only_the_agents_folders(
    made: Made, containers: ContainerBackend, lease: str
) -> None:
    shell = await made(verify_in="image")
    await shell.run("echo here > file; echo there > /etc/there; echo 'echo forged' > /usr/bin/cat")
    verify = Shell(await containers.open_verifier(lease, 0, {}))
    assert await verify.text("cat file; ls /etc/there") == (
        "here\nls: cannot access '/etc/there': No such file or directory"
    )


async def test_a_system_that_is_read_only_makes_checkpoints_exact(made: Made, tmp_path: Path) -> None:
    shell = await made(read_only=True)
    assert (await shell.run("touch /etc/x || touch /usr/x")).code != 0
    await shell.run("touch x ~/x /tmp/x")
    taken = await shell.sandbox.checkpoint(tmp_path / "blob")
    assert isinstance(taken, Checkpoint) and taken.exact


@pytest.fixture
def image_with(sdk: docker.DockerClient) -> Iterator[Callable[..., str]]:
    """Makes images with volumes, which have a file in each."""
    names = []

    def make(*volumes: str) -> str:
        name = f"localhost/volumes-{secrets.token_hex(4)}"
        script = "; ".join(f"mkdir -p {volume}; echo 1 > {volume}/of-image" for volume in volumes)
        container = sdk.containers.create(IMAGE, ["sh", "-c", script])
        container.start()
        container.wait()
        changes = [f"VOLUME {volume}" for volume in volumes]
        container.commit(name, changes=[*changes, "CMD sh"])
        container.remove()
        names.append(name)
        return name

    yield make
    for name in names:
        sdk.images.remove(name)


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_volumes_of_an_image_are_kept(
    made: Made,
    containers: ContainerBackend,
    lease: str,
    tmp_path: Path,
    image_with: Callable[..., str],
    read_only: bool,
) -> None:
    config = {"image": image_with("/data", "/var/lib/db", "/app", "/run/lock"), "read_only": read_only}
    shell = await made(**config)
    assert await shell.text("cat /data/of-image /var/lib/db/of-image of-image") == "1\n1\n1"
    await shell.run("echo 2 > /data/answer; echo 3 > /var/lib/db/answer")
    copies = Copies(containers, spec_of(**config), lease, tmp_path)
    again = await copies.copy(shell)
    assert await again.text("cat /data/answer /var/lib/db/*") == "2\n3\n1"
    await copies.destroy()
    verify = Shell(await containers.open_verifier(lease, 0, {}))
    assert await verify.text("cat /data/answer /var/lib/db/*") == "2\n3\n1"
    await containers.destroy(lease)


@pytest.mark.parametrize("volume", ["/app/data", "/home", "/dev/disk"])
async def test_a_volume_that_cannot_be_kept_is_refused(
    containers: ContainerBackend, lease: str, image_with: Callable[..., str], volume: str
) -> None:
    with pytest.raises(InvalidInput, match=f"VOLUME.*{volume}"):
        await containers.create(lease, spec_of(image=image_with(volume)))
    assert not containers.holds(lease)


async def test_an_image_under_a_name_that_moved_is_another_system(
    made: Made, containers: ContainerBackend, lease: str, sdk: docker.DockerClient
) -> None:
    name = f"localhost/moved-{secrets.token_hex(4)}"
    sdk.images.get(IMAGE).tag(name)
    shell = await made(image=name)
    before = await containers.system(lease)
    await shell.run("echo other > /usr/other")
    sdk.containers.get(container_of(containers, lease)).commit(name)
    await containers.destroy(lease)
    again = await made(image=name)
    assert (await again.run("test -e /usr/other")).code == 0
    assert await containers.system(lease) != before
    await containers.destroy(lease)
    sdk.images.remove(name)


async def test_folders_are_where_the_run_says(made: Made) -> None:
    shell = await made(workdir="/srv/task", home="/root")
    assert await shell.text("pwd; echo ~; touch ~/x /tmp/x; ls -A ~") == "/srv/task\n/root\nx"
    assert shell.sandbox.workspace == "/srv/task"


async def test_the_workspace_may_have_its_own_path_as_a_further_name(
    containers: ContainerBackend, lease: str
) -> None:
    aliases = {"/app": "/work", "/workspace": "/work"}
    shell = Shell(await containers.create(lease, spec_of().model_copy(update={"aliases": aliases})))
    assert await shell.text("pwd; ls /workspace") == "/app\nempty\nfrom-the-image"
    await containers.destroy(lease)


async def test_commands_have_the_variables_of_the_run_and_the_image(
    containers: ContainerBackend, lease: str
) -> None:
    spec = spec_of().model_copy(update={"variables": {"OF_RUN": "two words"}})
    shell = Shell(await containers.create(lease, spec))
    assert await shell.text('echo "$OF_RUN" $FROM_IMAGE') == "two words 1"
    await containers.destroy(lease)


async def test_commands_are_the_users(made: Made, tmp_path: Path) -> None:
    shell = await made(user="1234")
    assert await shell.text("id -u; touch x; stat -c %u x; grep CapEff /proc/self/status") == (
        "1234\n1234\nCapEff:\t0000000000000000"
    )
    await shell.sandbox.write_file("y", b"y")
    assert await shell.text("stat -c %u y") == "1234"
    assert isinstance(await shell.sandbox.checkpoint(tmp_path / "blob"), Checkpoint)


async def test_commands_are_the_images_user(made: Made, context: Path, sdk: docker.DockerClient) -> None:
    (context / "Dockerfile").write_text(f"{DOCKERFILE}USER nobody\n")
    shell = await made(image=None, dockerfile=str(context / "Dockerfile"))
    assert await shell.text("id -un; touch x; stat -c %U x") == "nobody\nnobody"


@pytest.mark.slow
async def test_files_keep_their_owners(
    made: Made, containers: ContainerBackend, lease: str, context: Path, tmp_path: Path
) -> None:
    """In an image's working directory, and in checkpoints: also of what the commands' user can't read."""
    (context / "Dockerfile").write_text(
        f"{DOCKERFILE}RUN mkdir own deep deep/down && echo 1 > secret && echo 2 > deep/down/known && ln -s / link "
        "&& chmod 600 secret && chmod 700 deep/down && chown -R nobody own && chown 7:8 empty\nUSER nobody\n"
    )
    config = {"image": None, "dockerfile": str(context / "Dockerfile")}
    shell = await made(**config)
    owners = "stat -c '%n %u:%g %a' from-the-image secret own empty deep/down link mine"
    expected = (
        "from-the-image 0:0 644\nsecret 0:0 600\nown 65534:0 755\nempty 7:8 755\ndeep/down 0:0 700\nlink 0:0 777\n"
        "mine 65534:65534 644"
    )
    assert await shell.text(
        f"echo mine > mine; {owners}; cat secret deep/down/known; echo x > from-the-image"
    ) == (
        f"{expected}\ncat: secret: Permission denied\ncat: deep/down/known: Permission denied\n"
        "bash: line 1: from-the-image: Permission denied"
    )
    assert await shell.sandbox.manifest() is not None
    copies = Copies(containers, spec_of(**config), lease, tmp_path)
    assert await (await copies.copy(shell)).text(owners) == expected
    await copies.destroy()
    assert await Shell(await containers.open_verifier(lease, 0, {})).text(owners) == expected


async def test_a_worker_without_rights_refuses_another_user_than_roots(
    containers: ContainerBackend, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InvalidInput, match="run the worker as root, or give `user: root`"):
        await containers.create(lease, spec_of(user="nobody"))
    assert not containers.holds(lease)


async def test_a_user_that_the_image_does_not_know_is_refused(
    containers: ContainerBackend, lease: str
) -> None:
    with pytest.raises(InvalidInput, match="no user 'nobody-else'"):
        await containers.create(lease, spec_of(user="nobody-else"))
    assert not containers.holds(lease)


# ---- isolation ----


async def test_root_in_a_container_reaches_nothing_of_its_supervisor(made: Made) -> None:
    shell = await made()
    tried = await shell.text(
        "id -u; ls -A /.control; grep control /proc/mounts; cat /proc/1/environ; ls /proc/1/root/; "
        "readlink /proc/1/fd/20; kill -9 1; kill -9 -1; echo alive"
    )
    assert tried.splitlines()[0] == "0"
    assert "deny" not in tried and tried.count("Permission denied") >= 2
    assert await shell.text("echo still") == "still"


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs x /mnt",
        "unshare --user true",
        "unshare --mount true",
        "echo x > /proc/sys/kernel/core_pattern",
        "mknod /tmp/disk b 8 0",
        "touch /.supervisor",
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 1))\"",
        "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 2)\"",
    ],
)
async def test_root_in_a_container_may_not(shell_in_container: Shell, attempt: str) -> None:
    assert (await shell_in_container.run(attempt)).code != 0


@pytest.fixture(scope="module")
async def shell_in_container(engine: str, folder: Path) -> AsyncIterator[Shell]:
    containers = ContainerBackend(folder / "containers", engine)
    shared = spec_of().model_copy(update=SHARED_LEASE)
    yield Shell(await containers.create("shared-container/lease/0", shared))
    await containers.destroy("shared-container/lease/0")


async def test_no_network_but_its_own(shell_in_container: Shell) -> None:
    devices = await shell_in_container.text("tail -n +3 /proc/net/dev | cut -d: -f1")
    assert devices.strip() == "lo"


async def test_memory_is_bounded_and_the_sandbox_goes_on(made: Made) -> None:
    shell = await made()
    job = shell.job("python3 -c 'x = bytearray(1 << 30)'")
    await shell.sandbox.start(job)
    status = await shell.sandbox.wait(job.key, PATIENCE_SECONDS)
    assert (status.exit_code, status.exhausted) == (137, "memory")
    assert await shell.text("echo on") == "on"


TAKES_EVERY_PROCESS = """exec python3 -c '
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
    except OSError:
        print("no more", flush=True)
        time.sleep(0.01)
'"""


async def test_files_are_served_where_commands_have_taken_every_process(
    containers: ContainerBackend, lease: str, tmp_path: Path
) -> None:
    shell = Shell(await containers.create(lease, spec_of().model_copy(update={"max_processes": 20})))
    job = shell.job(TAKES_EVERY_PROCESS)
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"no more")
    async with asyncio.timeout(PATIENCE_SECONDS):
        for number in range(3):
            taken = await shell.sandbox.checkpoint(tmp_path / f"blob-{number}", timeout=60)
            assert isinstance(taken, Checkpoint)
            assert (await shell.sandbox.read_file("from-the-image", 9)).content == b"1\n"
    assert (await shell.sandbox.wait(job.key, 0)).state is JobState.RUNNING
    verify = Shell(await containers.open_verifier(lease, 0, {}))
    assert await verify.text("cat from-the-image") == "1"
    await containers.destroy(lease)


async def test_an_archive_that_its_supervisor_never_ends_is_an_outage(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = await made()
    supervisor = lock_holder(shell.control.alive_file)
    assert supervisor is not None
    monkeypatch.setattr(archives, "ANSWER_SECONDS", 0.1)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        with pytest.raises(SandboxUnavailable, match="doesn't end an archive"):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await shell.sandbox.checkpoint(tmp_path / "blob", timeout=0.1)
    finally:
        os.kill(supervisor, signal.SIGCONT)


# ---- losses ----


async def lost(shell: Shell, key: str) -> None:
    assert (await shell.sandbox.wait(key, PATIENCE_SECONDS)).state is JobState.LOST
    with pytest.raises(SandboxLost):
        await shell.run("true")


@pytest.mark.parametrize("how", ["removed by hand", "killed by its engine", "killed by the kernel"])
async def test_a_container_that_goes_is_a_lost_sandbox(
    made: Made, containers: ContainerBackend, lease: str, sdk: docker.DockerClient, how: str
) -> None:
    shell = await made()
    job = shell.job("echo started; sleep 1000")
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"started")
    container = sdk.containers.get(container_of(containers, lease))
    match how:
        case "removed by hand":
            container.remove(force=True)
        case "killed by its engine":
            container.kill()
        case _:
            supervisor = lock_holder(shell.control.alive_file)
            assert supervisor is not None
            os.kill(supervisor, signal.SIGKILL)
    await lost(shell, job.key)
    with pytest.raises(SandboxLost):
        await containers.attach(lease, shell.sandbox.incarnation)
    again = await made()
    assert await again.text("cat from-the-image") == "1"


async def test_a_container_that_was_made_and_never_started_is_made_anew(
    made: Made, containers: ContainerBackend, lease: str, sdk: docker.DockerClient
) -> None:
    """Its engine or worker ended in between."""
    sdk.containers.create(IMAGE, ["sleep", "60"], name=container_of(containers, lease), labels={LABEL: "x"})
    assert await (await made()).text("echo here") == "here"


async def test_a_lease_that_ends_ends_the_container(
    containers: ContainerBackend, lease: str, sdk: docker.DockerClient
) -> None:
    await containers.create(lease, spec_of())
    await containers.renew(lease, 1)
    name = container_of(containers, lease)

    async def ended() -> bool:
        return bool(sdk.containers.get(name).status != "running")

    await until(ended)
    await containers.destroy(lease)


async def test_containers_of_hosts_long_gone_are_reaped_after_their_lease(
    containers: ContainerBackend, made: Made, sdk: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers that have ended without a folder are removed; those that others may be about to start are not."""
    await made()
    other = {LABEL: "another backend", LEASE_LABEL: "0"}
    create = partial(sdk.containers.create, IMAGE, ["true"])
    gone, unlabelled = create(labels=other), create()
    in_the_making = create(labels={**other, LEASE_LABEL: "600"})
    running = sdk.containers.run(IMAGE, ["sleep", "600"], labels=other, detach=True)
    try:
        assert await containers.reap() == (), "within its grace"
        monkeypatch.setattr(leftovers, "GRACE_SECONDS", -60.0)
        assert await containers.reap() == (gone.name,)
        left = {each.id for each in all_in(sdk)}
        assert gone.id not in left and {unlabelled.id, in_the_making.id, running.id} <= left
    finally:
        for each in (unlabelled, in_the_making, running):
            each.remove(force=True)


async def test_images_of_what_agents_left_go_with_their_sandbox(
    containers: ContainerBackend, made: Made, lease: str, sdk: docker.DockerClient
) -> None:
    """An engine may have ended a commit after its sandbox was destroyed."""
    await made()
    container = sdk.containers.get(container_of(containers, lease))
    labels = {label: container.labels[label] for label in (LABEL, LEASE_LABEL)}

    def committed(name: str, **changed: str) -> str:
        changes = [f"LABEL {label}={value}" for label, value in {**labels, **changed}.items()]
        return str(container.commit(f"localhost/{name}", changes=[*changes, f"ENV OF={name}"]).id)

    kept = committed(f"{container.name}-left-0")
    left = committed(f"{container_of(containers, 'another/r0/lease/0')}-left-0")
    of_another = committed("clotho-another-left-0", **{LABEL: "another backend"})
    try:
        await containers.reap()
        assert {each.id for each in sdk.images.list()} & {kept, left, of_another} == {kept, of_another}
    finally:
        for each in (kept, of_another):
            sdk.images.remove(each)


async def test_more_than_a_verifier_may_see_of_the_system_is_refused(
    made: Made, containers: ContainerBackend, lease: str
) -> None:
    shell = await made(system_changes_mb=8)
    await shell.run("head -c 16M /dev/zero > /usr/large")
    with pytest.raises(WorkspaceRefused, match="changed 16 MiB of the image's own system: more than 8"):
        await containers.open_verifier(lease, 0, {})
    await containers.destroy(lease)
    shell = await made(system_changes_mb=8)
    await shell.run("echo 1 > /usr/small; head -c 16M /dev/zero > large")
    assert await Shell(await containers.open_verifier(lease, 0, {})).text("cat /usr/small") == "1"


def test_roots_of_one_path_are_told_apart(tmp_path: Path) -> None:
    """Workers in containers of their own may have each its folder at the same path, and share an engine."""
    names = set()
    for number in range(2):
        names.add(ContainerFolder.of_lease(tmp_path / "root", "r/g0/r0/lease/0").container)
        (tmp_path / "root").rename(tmp_path / f"moved-{number}")
    assert len(names) == 2


# ---- what can't be ----


async def test_no_container_runs_without_its_filter_of_system_calls(
    containers: ContainerBackend, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "seccomp_program", lambda machine: b"")
    with pytest.raises(SandboxUnavailable, match="filter of system calls"):
        await containers.create(lease, spec_of(workdir="/never-seeded"))
    monkeypatch.undo()
    await containers.destroy(lease)


async def test_hidden_files_are_read_by_the_images_user_whatever_the_workers_umask(
    containers: ContainerBackend, lease: str
) -> None:
    await containers.create(lease, spec_of(user="1234"))
    usual = os.umask(0o077)
    try:
        verify = Shell(await containers.open_verifier(lease, 0, {"deep/test": b"hidden\n"}))
    finally:
        os.umask(usual)
    assert await verify.text("cat $CLOTHO_HIDDEN_FILES/deep/test") == "hidden"
    await containers.destroy(lease)


async def test_an_image_that_does_not_exist_is_named(containers: ContainerBackend, lease: str) -> None:
    for config in ({"image": "localhost/no-such-image"}, {"image": "localhost/none:1", "pull": "missing"}):
        with pytest.raises(InvalidInput, match=config["image"]):
            await containers.create(lease, spec_of(**config))
    assert not containers.holds(lease)


async def test_an_engine_that_is_not_there_is_an_outage(folder: Path, lease: str) -> None:
    backend = ContainerBackend(folder / "without-engine", f"unix://{folder}/nobody.sock")
    with pytest.raises(SandboxUnavailable, match=r"nobody\.sock"):
        await backend.create(lease, spec_of())
    assert "nobody.sock" in str((await backend.probe()).missing)
    assert not backend.holds(lease)


async def test_what_is_not_installed_is_named(
    folder: Path, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(InvalidInput, match=r"install clotho-rollouts\[docker\]"):
        await ContainerBackend(folder / "without-docker").create(lease, spec_of())


async def test_an_engine_elsewhere_is_refused(folder: Path, lease: str) -> None:
    with pytest.raises(InvalidInput, match="another machine"):
        await ContainerBackend(folder / "elsewhere", "tcp://192.0.2.1:2375").create(lease, spec_of())


async def test_a_disk_that_cannot_be_bounded_is_refused_where_bounds_are_required(
    containers: ContainerBackend, lease: str
) -> None:
    with pytest.raises(IsolationUnavailable, match="disk"):
        await containers.create(lease, spec_of().model_copy(update={"limits": "required"}))


# ---- builds ----

DOCKERFILE = f"FROM {IMAGE}\nCOPY said /app/said\nRUN cat /app/said >> /app/built\nWORKDIR /app\n"


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "said").write_text(f"{tmp_path}\n")
    return tmp_path


async def test_a_hundred_rollouts_build_an_image_once(
    context: Path, engine: str, folder: Path, sdk: docker.DockerClient
) -> None:
    before = {each.id for each in sdk.images.list(all=True)}
    one = Engine(engine)
    asked = partial(build, one, context, "Dockerfile", folder / "build-locks")
    (name,) = set(await asyncio.gather(*(asyncio.to_thread(asked) for _ in range(100))))
    (context / "said").write_text("another\n")
    assert await asyncio.to_thread(asked) != name
    for image in {each.id for each in sdk.images.list()} - before:
        sdk.images.remove(image, force=True)


async def test_an_image_is_built_anew_when_the_one_that_it_begins_from_has_changed(
    tmp_path: Path, engine: str, folder: Path, sdk: docker.DockerClient
) -> None:
    base = "localhost/clotho-test-base"
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nLABEL of=test\n")
    one = Engine(engine)
    names: list[str] = []
    for content in ("first", "second"):
        root = io.BytesIO()
        with tarfile.open(fileobj=root, mode="w") as tar:
            tar.addfile(tarfile.TarInfo(content))
        sdk.api.import_image_from_data(root.getvalue(), repository=base)
        again = [
            await asyncio.to_thread(build, one, tmp_path, "Dockerfile", folder / "build-locks")
            for _ in range(2)
        ]
        names += set(again)
    assert len(names) == len(set(names)) == 2
    for name in (*names, base):
        sdk.images.remove(name, force=True)


async def test_a_step_that_fails_shows_the_end_of_its_log(context: Path, engine: str, folder: Path) -> None:
    (context / "Dockerfile").write_text(f"{DOCKERFILE}RUN echo the reason && exit 3\n")
    with pytest.raises(InvalidInput, match=r"(?s)can't be built.*exit 3.*the reason"):
        await asyncio.to_thread(build, Engine(engine), context, "Dockerfile", folder / "build-locks")


@pytest.mark.slow
async def test_a_registry_that_cant_be_reached_is_an_outage_to_a_build(
    engine: str, context: Path, folder: Path
) -> None:
    (context / "Dockerfile").write_text("FROM 127.0.0.1:1/not/there\n")
    with pytest.raises(SandboxUnavailable, match="can't be built"):
        await asyncio.to_thread(build, Engine(engine), context, "Dockerfile", folder / "build-locks")


async def test_a_sandbox_begins_from_a_dockerfile(
    made: Made, context: Path, sdk: docker.DockerClient
) -> None:
    shell = await made(image=None, dockerfile=str(context / "Dockerfile"))
    assert await shell.text("cat built") == str(context)


@pytest.mark.slow
async def test_forty_at_once(containers: ContainerBackend, sdk: docker.DockerClient) -> None:
    before = len(all_in(sdk))
    leases = [f"forty/r{number}/lease/0" for number in range(40)]

    async def life(lease: str) -> str:
        said = await Shell(await containers.create(lease, spec_of())).text("echo $FROM_IMAGE")
        await containers.destroy(lease)
        return said

    assert set(await asyncio.gather(*map(life, leases))) == {"1"}
    assert len(all_in(sdk)) == before
