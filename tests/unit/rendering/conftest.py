from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from clotho.models.rendering.renderer import Renderer
from clotho.models.rendering.resolve import open_renderer
from tests.unit.rendering.families import FAMILIES, make_model


class OpenFamily(Protocol):
    def __call__(
        self, family: str, *, packaged: bool = False, thinking_mode: bool = False, copy: int = 0
    ) -> Renderer: ...


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, family in FAMILIES.items():
        make_model(root / name, family)
    return root


@pytest.fixture(scope="session")
def open_family(models: Path) -> OpenFamily:
    """Opens a family's renderer; each `copy` is another one."""

    @cache
    def opened(
        family: str, *, packaged: bool = False, thinking_mode: bool = False, copy: int = 0
    ) -> Renderer:
        return open_renderer(
            str(models / family),
            renderer=FAMILIES[family].packaged if packaged else None,
            tool_call_parser=None if packaged else FAMILIES[family].parser,
            thinking_mode=thinking_mode,
        )

    return opened
