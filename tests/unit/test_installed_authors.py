"""Authors' code that is installed like a library: its errors are its own, not the host's."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from clotho.environment.in_process import OwnProcess
from clotho.errors import EnvironmentFailed

SOURCE = """
def plain():
    return open("/nowhere/to/be/found")

async def awaited():
    return plain()
"""


@pytest.mark.parametrize("name", ["plain", "awaited"])
@pytest.mark.parametrize("folder", ["site-packages", "project"])
async def test_a_missing_file_is_the_authors_error(folder: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / folder / "verifiers.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("verifiers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    call = OwnProcess(asyncio.get_running_loop())
    with pytest.raises(EnvironmentFailed, match="FileNotFoundError"):
        await call(getattr(module, name))
