"""Sandboxes in containers: what is seen of an engine, and a representative part of the matrix, played for real."""

import io
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from chaos import __main__ as program
from chaos.containers import matrix
from chaos.containers.engine import engine_in
from chaos.containers.faults import FAULTS
from chaos.delivery import matrix as delivery_matrix
from chaos.lanes import play_all
from chaos.results import CellResult
from chaos.table import Name

CELLS: tuple[Name, ...] = (
    ("container-worker", "mid-command"),
    ("engine", "reward"),
    ("engine-whole", "checkpoint"),
    ("container-first", "mid-command"),
    ("container-rm", "reward"),
)
needs_podman = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("runc"),
    reason="an engine of its own takes root, podman and runc",
)


@needs_podman
async def test_what_is_left_of_an_engine_is_seen(tmp_path: Path) -> None:
    root = io.BytesIO()
    with tarfile.open(fileobj=root, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("file"))
    async with engine_in(tmp_path / "engine", None) as engine:
        assert await engine.left() == []
        engine.sdk.api.import_image_from_data(root.getvalue(), repository="localhost/left")
        made = engine.sdk.containers.create("localhost/left", ["none"], name="made", network_mode="none")
        assert await engine.left() == ["container made", "image localhost/left:latest"]
        await engine.kill()
        await engine.start()
        assert "container made" in await engine.left()
        made.remove()
        engine.sdk.images.remove("localhost/left")
        assert await engine.left() == []


def test_a_matrix_of_which_no_cell_was_asked_for_stays_in_the_document(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    of_containers, of_delivery = f"{matrix.HEADING}\n\nold", f"{delivery_matrix.HEADING}\n\nold"
    program.write(page, "# First\n", None, of_delivery)
    program.write(page, None, of_containers, None)
    assert page.read_text() == f"# First\n\n{of_containers}\n\n{of_delivery}\n"
    program.write(page, "# Second", None, None)
    assert page.read_text() == f"# Second\n\n{of_containers}\n\n{of_delivery}\n"


@pytest.fixture(scope="module")
async def results() -> Mapping[Name, CellResult]:
    played: list[CellResult] = []
    await play_all(CELLS, FAULTS, played.append, contained=True)
    return {(result.fault, result.phase): result for result in played}


@needs_podman
@pytest.mark.slow
@pytest.mark.parametrize(("fault", "phase"), CELLS)
async def test_nothing_is_lost_repaid_re_run_or_left_behind(
    results: Mapping[Name, CellResult], fault: str, phase: str
) -> None:
    result = results[fault, phase]
    assert result.missed == [], result
