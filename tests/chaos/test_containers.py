"""Sandboxes in containers: what the matrix sees of an engine, and where it writes; `make chaos` plays it."""

import asyncio
import io
import tarfile
from pathlib import Path

import pytest

from chaos.containers.engine import PodmanEngine, engine_in, lacking
from chaos.waiting import until
from clotho.errors import SandboxUnavailable
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.sandbox.backend import SandboxSpec
from tests.machine_image import IMAGE

needs_podman = pytest.mark.skipif(lacking() is not None, reason=lacking() or "")


def import_image(engine: PodmanEngine, name: str) -> None:
    """An image that holds a file."""
    root = io.BytesIO()
    with tarfile.open(fileobj=root, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("file"))
    engine.sdk.api.import_image_from_data(root.getvalue(), repository=name)


@needs_podman
@pytest.mark.slow
async def test_what_is_left_of_an_engine_is_seen(tmp_path: Path) -> None:
    async with engine_in(tmp_path / "engine") as engine:
        assert await engine.left() == []
        import_image(engine, "localhost/left")
        made = engine.sdk.containers.create("localhost/left", ["none"], name="made", network_mode="none")
        assert await engine.left() == ["container made", "image localhost/left:latest"]
        await engine.kill()
        await engine.start()
        assert "container made" in await engine.left()
        made.remove()
        engine.sdk.images.remove("localhost/left")
        assert await engine.left() == []


HOLDING_RUNTIME = """\
#!/bin/sh
case " $* " in *" create "*)
    if [ -e {folder}/hold ]; then touch {folder}/held; fi
    while [ -e {folder}/hold ]; do sleep 0.02; done ;;
esac
exec runc "$@"
"""
"""A runtime that makes no container while there is a file `hold`."""


@needs_podman
@pytest.mark.slow
async def test_an_engine_that_dies_while_it_makes_a_container_leaves_nothing_of_it(tmp_path: Path) -> None:
    runtime, hold, held = tmp_path / "runtime", tmp_path / "hold", tmp_path / "held"
    runtime.write_text(HOLDING_RUNTIME.format(folder=tmp_path))
    runtime.chmod(0o755)
    async with engine_in(tmp_path / "engine", runtime=str(runtime)) as engine:
        import_image(engine, IMAGE)
        backend = ContainerBackend(tmp_path / "sandboxes", engine.address)
        spec = SandboxSpec(backend=DockerConfig(image=IMAGE, pull="never"))
        await backend.create("before/lease/0", spec)
        await backend.destroy("before/lease/0")
        hold.touch()
        making = asyncio.create_task(backend.create("lease/0", spec))
        await until(lambda: asyncio.to_thread(held.exists), "the making of a container")
        await engine.kill()
        hold.unlink()
        with pytest.raises(SandboxUnavailable):
            await making
        await engine.start()
        await backend.create("lease/0", spec)
        await backend.destroy("lease/0")

        async def nothing_left() -> bool:
            return await engine.left() == []

        await until(nothing_left, "an engine with nothing left")
