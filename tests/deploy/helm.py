"""Helm, from the path or built with Go."""

from pathlib import Path

from clotho.config import cache_folder
from clotho.host import program_on_path
from tests.go_programs import go_program

PACKAGE = "helm.sh/helm/v3/cmd/helm@v3.18.6"


async def helm_program() -> Path | None:
    return await go_program(
        "helm",
        PACKAGE,
        cache_folder() / "bin",
        on_path=program_on_path("helm"),
        go=program_on_path("go"),
    )
