"""Checkpoints that keep the image's own system, as an image that the engine commits."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import docker
import pytest

from clotho.plugins.containers import commits
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.holdings import KEPT
from clotho.sandbox.backend import Labels
from clotho.sandbox.checkpoints import Checkpoint, NotTaken
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell
from tests.sandbox.test_containers import containers, sdk, spec_of

__all__ = ["containers", "sdk"]

SPEC = spec_of(checkpoint="commit", system_changes_mb=8)
INSTALL = "echo installed > /usr/lib/package; rm /usr/bin/yes"
LOOK = "cat /usr/lib/package; ls /usr/bin/yes /usr/bin/cat"
INSTALLED = "installed\nls: cannot access '/usr/bin/yes': No such file or directory\n/usr/bin/cat"


@pytest.fixture(autouse=True)
def removed(sdk: docker.DockerClient) -> Iterator[None]:
    """Nothing is left of what tests keep."""
    yield
    for tag in kept_images(sdk):
        sdk.images.remove(tag, force=True)


def kept_images(sdk: docker.DockerClient) -> list[str]:
    return sorted(tag for each in sdk.images.list() for tag in each.tags if KEPT in tag)


@pytest.fixture
async def own(containers: ContainerBackend, lease: str) -> AsyncIterator[Shell]:
    yield Shell(await containers.create(lease, SPEC))
    await containers.destroy(lease)


@pytest.fixture
async def copies(containers: ContainerBackend, lease: str, tmp_path: Path) -> AsyncIterator[Copies]:
    made = Copies(containers, SPEC, lease, tmp_path)
    yield made
    await made.destroy()


async def test_what_commands_installed_is_restored(
    own: Shell, copies: Copies, containers: ContainerBackend, lease: str
) -> None:
    """From the engine's image, when nothing is left of the container, and once more from what was restored."""
    await own.run(f"echo here > file; {INSTALL}")
    taken = await copies.take(own)
    assert taken.exact and taken.system is not None
    before = await containers.system(lease)
    await containers.destroy(lease)
    again = await copies.restore(taken)
    assert await again.text(f"cat file; {LOOK}") == f"here\n{INSTALLED}"
    assert await containers.system(f"{lease}1") == before, "it counts as the same system"
    after = await copies.take(again, previous=taken)
    assert after.exact and after.system is not None and after.system.image == taken.system.image
    await again.run("echo more > /usr/lib/more")
    third = await copies.copy(again)
    assert await third.text(f"{LOOK}; cat /usr/lib/more") == f"{INSTALLED}\nmore"


@pytest.mark.slow
async def test_a_verifier_sees_what_was_restored(
    own: Shell, copies: Copies, containers: ContainerBackend, lease: str
) -> None:
    await own.run(INSTALL)
    await copies.copy(own)
    verifier = Shell(await containers.open_verifier(f"{lease}1", 0, {}))
    assert await verifier.text(LOOK) == INSTALLED


@pytest.mark.slow
async def test_nothing_is_committed_where_the_system_has_not_changed(
    own: Shell, copies: Copies, sdk: docker.DockerClient
) -> None:
    await own.run("echo here > file; touch /var/tmp/x && rm /var/tmp/x")
    first = await copies.take(own)
    assert first.exact and first.system is None and not kept_images(sdk)
    await own.run(INSTALL)
    second = await copies.take(own, previous=first)
    await own.run("echo more >> file")
    third = await copies.take(own, previous=second)
    assert second.system == third.system and len(kept_images(sdk)) == 1


@pytest.mark.slow
async def test_the_two_newest_of_a_rollout_are_kept(
    own: Shell, copies: Copies, sdk: docker.DockerClient
) -> None:
    taken: list[Checkpoint] = []
    for number in range(4):
        await own.run(f"echo {number} > /usr/lib/number")
        taken.append(await copies.take(own, previous=taken[-1] if taken else None))
    names = [each.system.image for each in taken if each.system is not None]
    assert [tag.removesuffix(":latest") for tag in kept_images(sdk)] == names[-2:]
    assert await (await copies.restore(taken[-2])).text("cat /usr/lib/number") == "2"


@pytest.mark.slow
async def test_an_image_that_is_gone_leaves_the_folders_and_another_system(
    own: Shell, copies: Copies, containers: ContainerBackend, sdk: docker.DockerClient, lease: str
) -> None:
    """The rollout goes on, recorded as restored."""
    await own.run(f"echo here > file; {INSTALL}")
    taken = await copies.take(own)
    for tag in kept_images(sdk):
        sdk.images.remove(tag)
    again = await copies.restore(taken)
    assert (
        await again.text("cat file; cat /usr/lib/package 2>/dev/null; ls /usr/bin/yes")
        == "here\n/usr/bin/yes"
    )
    assert await containers.system(f"{lease}1") != await containers.system(lease)


async def test_images_are_reaped_when_no_sandbox_of_their_rollout_is_left(
    containers: ContainerBackend,
    sdk: docker.DockerClient,
    lease: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = Labels(cluster="c", namespace="n", store="s", rollout=f"{lease}-rollout")
    own = Shell(await containers.create(lease, SPEC, labels))
    await own.run(INSTALL)
    taken = await own.sandbox.checkpoint(tmp_path / "blob")
    assert isinstance(taken, Checkpoint) and taken.system is not None
    monkeypatch.setattr(commits, "KEPT_SECONDS", -60.0)
    await containers.reap()
    assert len(kept_images(sdk)) == 1, "its sandbox is there"
    await containers.destroy(lease)
    monkeypatch.setattr(commits, "KEPT_SECONDS", 600.0)
    await containers.reap()
    assert len(kept_images(sdk)) == 1, "it may be restored"
    monkeypatch.setattr(commits, "KEPT_SECONDS", -60.0)
    (tmp_path / "others" / "sandboxes").mkdir(parents=True)
    await ContainerBackend(tmp_path / "others", containers._address).reap()
    assert len(kept_images(sdk)) == 1, "it is another backend's"
    await containers.reap()
    assert not kept_images(sdk)


@pytest.mark.slow
async def test_more_than_may_be_changed_is_no_checkpoint(own: Shell, tmp_path: Path) -> None:
    await own.run("head -c 16M /dev/zero > /usr/large")
    taken = await own.sandbox.checkpoint(tmp_path / "blob")
    assert isinstance(taken, NotTaken) and taken.reason == "too_large" and taken.size >= 16 << 20
    await own.run("rm /usr/large")
    assert isinstance(await own.sandbox.checkpoint(tmp_path / "blob"), Checkpoint)
