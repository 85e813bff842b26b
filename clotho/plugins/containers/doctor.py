"""The state of the container engine, which only runs with `--sandbox docker` need."""

from clotho.cli.doctor.findings import Examination, Finding
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.opening import engine_address


async def examine(examination: Examination) -> list[Finding]:
    settings = examination.settings
    backend = ContainerBackend(settings.sandbox.root / "containers", engine_address(settings), 0)
    report = await backend.probe()
    if not report.isolated:
        reasons = "; ".join(missing.removeprefix("starts at all: ") for missing in report.missing)
        return [Finding(f"containers: none here ({reasons})")]
    return [Finding(f"containers: an engine answers; bounds: memory {report.memory}, disk {report.disk}")]
