"""Working directories and homes as a plain container of the image has them."""

from pathlib import Path

import docker
import pytest

from clotho.plugins.containers.backend import ContainerBackend
from clotho.sandbox.checkpoints import Checkpoint
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell
from tests.sandbox.test_commits import kept_images
from tests.sandbox.test_containers import Made, containers, made, sdk, spec_of

__all__ = ["containers", "made", "sdk"]


async def test_the_home_is_the_images_for_its_user(made: Made) -> None:
    shell = await made(image_places=True)
    assert await shell.text("echo $HOME; cd; pwd; touch ~/.bashrc && ls -A /root") == "/root\n/root\n.bashrc"
    assert shell.sandbox.home == "/root"


@pytest.mark.parametrize(
    "places",
    [
        {"workdir": "/home/agent/project", "home": "/home/agent"},
        {"workdir": "/home/agent"},
        {"workdir": "/home", "home": "/home/agent"},
        {"workdir": "/tmp/project"},
        {"workdir": "/tmp"},
    ],
)
async def test_a_workspace_may_lie_in_another_folder(
    made: Made, containers: ContainerBackend, lease: str, tmp_path: Path, places: dict[str, str]
) -> None:
    """What is written there is in checkpoints once, and a verifier with the image's own system sees it."""
    shell = await made(**places, verify_in="image")
    assert await shell.text("pwd") == places["workdir"]
    await shell.run("echo work > file; echo home > ~/kept; echo tmp > /tmp/kept")
    assert (await shell.sandbox.read_file("/work/file", 9)).content == b"work\n"
    copies = Copies(containers, spec_of(**places), lease, tmp_path)
    again = await copies.copy(shell)
    look = f"cat {places['workdir']}/file ~/kept /tmp/kept"
    assert await again.text(look) == "work\nhome\ntmp"
    await copies.destroy()
    verify = Shell(await containers.open_verifier(lease, 0, {}))
    assert await verify.text(look.replace("~", places.get("home", "/home/agent"))) == "work\nhome\ntmp"


async def test_a_workspace_in_a_further_folder_keeps_the_images_content(
    containers: ContainerBackend, lease: str, sdk: docker.DockerClient, tmp_path: Path
) -> None:
    spec = spec_of(workdir="/app/empty").model_copy(update={"writable_roots": ("/app",)})
    try:
        shell = Shell(await containers.create(lease, spec))
        assert await shell.text("pwd; cat ../from-the-image; echo x > y; ls ..") == (
            "/app/empty\n1\nempty\nfrom-the-image"
        )
    finally:
        await containers.destroy(lease)


async def test_a_workspace_that_is_the_whole_system_keeps_what_commands_change(
    made: Made, containers: ContainerBackend, lease: str, tmp_path: Path, sdk: docker.DockerClient
) -> None:
    shell = await made(workdir="/", verify_in="image", checkpoint="commit")
    assert await shell.text("pwd; echo 1 > answer; mkdir data; echo 2 > data/x") == "/"
    assert (await shell.sandbox.read_file("answer", 9)).content == b"1\n"
    assert (await shell.sandbox.read_file("/work/answer", 9)).content == b"1\n"
    copies = Copies(containers, spec_of(workdir="/", checkpoint="commit"), lease, tmp_path)
    taken = await copies.take(shell)
    assert taken.exact
    assert await (await copies.restore(taken)).text("cat answer data/x") == "1\n2"
    await copies.destroy()
    verify = Shell(await containers.open_verifier(lease, 0, {}))
    assert await verify.text("pwd; cat answer data/x") == "/\n1\n2"
    assert (await verify.sandbox.read_file("answer", 9)).content == b"1\n"
    assert verify.sandbox.is_agents("/data/x")
    await containers.destroy(lease)
    for tag in kept_images(sdk):
        sdk.images.remove(tag, force=True)


async def test_what_the_image_has_in_a_folder_in_memory_makes_no_checkpoint_less_exact(
    containers: ContainerBackend, lease: str, sdk: docker.DockerClient, tmp_path: Path
) -> None:
    """Debian's images have /run/lock, which podman copies into the folder in memory."""
    (tmp_path / "Dockerfile").write_text("FROM localhost/clotho-test-machine\nCOPY run /run\n")
    (tmp_path / "run" / "lock").mkdir(parents=True)
    (tmp_path / "run" / "file").write_text("x")
    spec = spec_of(image=None, dockerfile=str(tmp_path / "Dockerfile"), checkpoint="commit")
    shell = Shell(await containers.create(lease, spec))
    try:
        assert (await shell.run("echo x > file")).code == 0
        taken = await shell.sandbox.checkpoint(tmp_path / "blob")
        assert isinstance(taken, Checkpoint) and taken.exact
        await shell.run("echo x > /run/mine")
        left = await shell.sandbox.checkpoint(tmp_path / "blob")
        assert isinstance(left, Checkpoint) and not left.exact
    finally:
        await containers.destroy(lease)
        for each in sdk.images.list():
            if any("clotho-build" in tag for tag in each.tags):
                sdk.images.remove(each.id, force=True)
