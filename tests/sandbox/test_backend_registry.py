"""Backends by name: what a host's settings say is opened, and a run that asks for another one is refused."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from clotho.config import SandboxSettings
from clotho.errors import InvalidInput
from clotho.run_settings import RunSettings
from clotho.sandbox.backend import SandboxSpec, require_backend
from clotho.sandbox.registry import CustomConfig, LocalConfig, open_backend

PLAIN = "examples.how_to.plain_backend:PlainBackend"


async def test_a_class_outside_the_library_is_opened_by_its_name(folder: Path) -> None:
    backend = open_backend(SandboxSettings(backend=PLAIN), folder / "named")
    spec = SandboxSpec.model_validate({"backend": PLAIN, "unsafe_local": True})
    assert spec.backend == CustomConfig(name=PLAIN)
    assert backend.names == (PLAIN, "docker")
    require_backend(spec, backend)
    await backend.create("named/lease/0", spec)
    assert [held.lease for held in await backend.leases()] == ["named/lease/0"]
    await backend.destroy("named/lease/0")


def test_a_run_that_asks_for_another_backend_is_refused(folder: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"sandboxes of local, this host makes those of .*PlainBackend and docker"
    ):
        require_backend(SandboxSpec(), open_backend(SandboxSettings(backend=PLAIN), folder / "named"))


def test_a_configuration_is_written_with_its_kind_and_read_from_its_name_too() -> None:
    assert SandboxSpec().model_dump(mode="json")["backend"] == {"kind": "local"}
    assert SandboxSpec.model_validate({"backend": {"kind": "local"}}).backend == LocalConfig()
    assert SandboxSpec.model_validate({"backend": "local"}).backend == LocalConfig()


@pytest.mark.parametrize("name", ["elsewhere", "a b:C", "module:Class:More", ""])
def test_what_names_no_backend_is_refused(name: str, folder: Path) -> None:
    with pytest.raises(ValidationError):
        RunSettings(sandbox=name)
    with pytest.raises(InvalidInput):
        open_backend(SandboxSettings(backend=name), folder)


@pytest.mark.parametrize("name", ["no_such_module:Backend", "examples.how_to.plain_backend:Nothing"])
def test_what_cant_be_imported_is_said(name: str, folder: Path) -> None:
    with pytest.raises(InvalidInput, match="can't be imported"):
        open_backend(SandboxSettings(backend=name), folder)
