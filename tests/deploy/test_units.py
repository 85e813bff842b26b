"""The unit for bare hosts, as systemd reads it."""

import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from clotho.worker_settings import WorkerSettings
from tests.cli.command import CLOTHO
from tests.deploy.clotho_part import check_command, check_variables
from tests.docs.test_docs_refer_to_things_that_exist import programs

__all__ = ["programs"]

FOLDER = Path("deploy/systemd").absolute()
UNIT = "clotho-worker.service"
INSTALLED = "/opt/clotho/bin/clotho"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze isn't here")
    unit = tmp_path / UNIT
    unit.write_text((FOLDER / UNIT).read_text().replace(INSTALLED, CLOTHO))
    assert findings(unit) == []
    unit.write_text(unit.read_text().replace("KillMode=process", "KillMode=sandboxes"))
    assert ["kill mode" in each for each in findings(unit)] == [True]


def findings(unit: Path) -> list[str]:
    """What systemd says of the unit; units of this machine that it needs may have faults of their own."""
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    return [line for line in checked.stderr.splitlines() if UNIT in line]


def test_its_settings_and_command_are_clothos(programs: dict[str, object]) -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FOLDER / UNIT)
    service = unit["Service"]
    variables = dict(
        line.split("=", 1)
        for line in (FOLDER / "worker.env").read_text().splitlines()
        if line[:1] not in ("", "#")
    )
    arguments = variables.pop("ARGUMENTS")
    check_variables([*variables, *(each.partition("=")[0] for each in service["Environment"].split())])
    program, *words = service["ExecStart"].replace("$ARGUMENTS", arguments).split()
    assert program == INSTALLED
    check_command(programs, words)
    check_command(programs, [*words, "--roles", "tools"])
    assert float(service["TimeoutStopSec"]) >= WorkerSettings().drain_seconds + 30
    assert (service["KillMode"], service["Delegate"]) == ("process", "yes")
