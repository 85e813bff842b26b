"""Backends by name: what a host's settings say is opened, and a run that asks for another one is refused."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from clotho.config import SandboxSettings
from clotho.errors import InvalidInput
from clotho.plugins.containers.config import DockerConfig
from clotho.run_settings import RunSettings
from clotho.sandbox.backend import SandboxSpec, require_backend
from clotho.sandbox.registry import AnyConfig, CustomConfig, LocalConfig, chosen_backend, open_backend
from tests.sandbox.conftest import needs_root
from tests.support import PATIENCE_SECONDS

PLAIN = "examples.how_to.plain_backend:PlainBackend"


async def test_a_class_outside_the_library_is_opened_by_its_name(folder: Path) -> None:
    backend = open_backend(SandboxSettings(backend=PLAIN), folder / "named")
    spec = SandboxSpec.model_validate({"backend": PLAIN, "unsafe_local": True})
    assert spec.backend == CustomConfig(name=PLAIN)
    assert backend.names == (PLAIN, "docker", "apptainer", "modal", "e2b", "daytona")
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


def chosen(sandbox: str | None, image: str | None) -> AnyConfig:
    return chosen_backend(sandbox, image, LocalConfig())


def test_a_run_chooses_its_backend_by_a_name_an_image_or_a_whole_configuration() -> None:
    assert chosen("docker", "debian:12") == DockerConfig(image="debian:12")
    whole = '{"kind": "docker", "image": "debian:12", "cpus": 2}'
    assert chosen(whole, None) == DockerConfig(image="debian:12", cpus=2)
    assert chosen_backend(None, "alpine", chosen(whole, None)) == DockerConfig(image="alpine", cpus=2)
    assert chosen(None, None) == chosen("local", None) == LocalConfig()


@pytest.mark.parametrize(
    ("sandbox", "image", "said"),
    [
        ("local", "debian:12", "sandboxes of local have no image: give --sandbox docker"),
        (None, "debian:12", "sandboxes of local have no image: give --sandbox docker"),
        ("docker", None, "give --image"),
        (
            '{"kind": "docker",',
            None,
            "isn't JSON: Expecting property name enclosed in double quotes: line 1 column 19",
        ),
        ("elsewhere", None, "no sandbox backend 'elsewhere': give local, docker, apptainer, modal, e2b,"),
        ('{"kind": "docker", "image": "x", "gpu": 1}', None, "gpu: Extra inputs"),
        (
            '{"kind": "docker", "image": "x", "workdir": "/", "read_only": true}',
            None,
            "the image's own system",
        ),
        ('{"kind": "docker", "image": "x", "dockerfile": "y"}', None, "either `image` or `dockerfile`"),
    ],
)
def test_a_choice_that_makes_no_sandbox_is_refused(sandbox: str | None, image: str | None, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        chosen(sandbox, image)


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


@pytest.mark.parametrize("cloud", ["modal", "e2b", "daytona"])
def test_sandboxes_of_a_cloud_begin_from_an_image(cloud: str) -> None:
    chosen = chosen_backend(cloud, "python:3.12-slim", LocalConfig())
    assert (chosen.name, str(chosen)) == (cloud, f"{cloud} (python:3.12-slim)")
    with pytest.raises(InvalidInput, match="give --image NAME"):
        chosen_backend(cloud, None, LocalConfig())
    assert chosen_backend(json.dumps(chosen.model_dump()), None, LocalConfig()) == chosen


async def test_a_cloud_without_its_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modal", None)
    monkeypatch.delitem(sys.modules, "clotho.plugins.clouds.modal", raising=False)
    backend = open_backend(SandboxSettings(), tmp_path)
    spec = SandboxSpec(backend=chosen_backend("modal", "python:3.12-slim", LocalConfig()))
    with pytest.raises(InvalidInput, match=r"clotho-rollouts\[modal\]"):
        await backend.create("run/g0/r0/lease/0", spec)


@needs_root
@pytest.mark.parametrize("worker_elsewhere", [False, True])
async def test_the_first_lease_is_as_long_as_those_that_follow(
    folder: Path, lease: str, worker_elsewhere: bool
) -> None:
    """Those of a worker elsewhere are as it says: its settings are on its own machine."""
    settings = SandboxSettings(lease_seconds=3000)
    backend = open_backend(settings, folder / "leased", worker_elsewhere=worker_elsewhere)
    await backend.create(lease, SandboxSpec(lease_seconds=9000, disk_mb=200))
    (held,) = await backend.leases()
    await backend.destroy(lease)
    expected = 9000 if worker_elsewhere else 3000
    assert expected - PATIENCE_SECONDS < held.expires - time.time() <= expected
