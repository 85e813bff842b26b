"""Sandboxes that Apptainer makes: how it is called, what is refused, and images that are unpacked once.

The conformance suite runs them where Apptainer is installed. Here programs in its place tell what they were asked,
or do it.
"""

import asyncio
import csv
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from clotho.config import SandboxSettings
from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.plugins.apptainer.backend import ApptainerBackend
from clotho.plugins.apptainer.command import Apptainer, bind
from clotho.plugins.apptainer.config import ApptainerConfig
from clotho.plugins.apptainer.images import Images
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.registry import LocalConfig, chosen_backend, open_backend
from clotho.sandbox.threads import with_image
from tests.sandbox.apptainer_image import write_image
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell

RECORDS = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
    *missing*) echo "FATAL: manifest unknown" >&2; exit 255;;
    *full*) echo "FATAL: no space left on device" >&2; exit 255;;
    *broken.sif*) echo "FATAL: image format not recognized" >&2; exit 255;;
    *" build "*) eval "mkdir -p \\${{$(($# - 1))}}";;
esac
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def images(tmp_path: Path, log: Path) -> Images:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(RECORDS.format(log=log))
    program.chmod(0o755)
    return Images(tmp_path / "images", Apptainer(str(program)))


async def test_a_host_without_apptainer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = open_backend(SandboxSettings(), tmp_path / "sandboxes")
    spec = SandboxSpec(backend=chosen_backend("apptainer", "python:3.12-slim", LocalConfig()))
    with pytest.raises(InvalidInput, match="need apptainer or singularity on this host, which has neither"):
        await backend.create("run/g0/r0/lease/0", spec)
    assert not await backend.leases()


async def test_singularity_is_taken_where_there_is_no_apptainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "singularity").write_text("#!/bin/sh\n")
    (tmp_path / "singularity").chmod(0o755)
    found = Apptainer.installed()
    assert found == Apptainer(str(tmp_path / "singularity"))
    assert found.handed_on({"A": "1"}) == {"SINGULARITYENV_A": "1"}


@pytest.mark.parametrize("field", ["network", "workdir", "user", "dockerfile"])
def test_what_apptainer_has_not_is_refused_with_the_reason(field: str) -> None:
    with pytest.raises(ValidationError, match=f"{field}: .{{20}}"):
        ApptainerConfig.model_validate({"image": "/image.sif", field: "x"})


@pytest.mark.parametrize("path", ["/plain", "/with, comma:colon", '/with "quotes"'])
def test_mounts_bear_every_path(path: str) -> None:
    (fields,) = csv.reader([bind(path, "/work", read_only=True)])
    assert fields == ["type=bind", f"source={path}", "destination=/work", "ro"]


def test_a_folder_is_an_image_as_it_is(images: Images, tmp_path: Path, log: Path) -> None:
    assert images.folder(str(tmp_path)) == tmp_path
    assert not log.exists()


@pytest.mark.parametrize(
    ("image", "source"),
    [
        ("python:3.12-slim", "docker://python:3.12-slim"),
        ("localhost:5000/image", "docker://localhost:5000/image"),
        ("oras://example.org/image:1", "oras://example.org/image:1"),
        ("docker-archive:/images/one.tar", "docker-archive:/images/one.tar"),
    ],
)
async def test_an_image_is_unpacked_once_for_all_who_ask(
    images: Images, log: Path, image: str, source: str
) -> None:
    """In this process, and in others, which wait for one another at a lock."""
    folders = await asyncio.gather(
        *(with_image(("test", image), images.folder, image) for _ in range(3)),
        *(asyncio.to_thread(images.folder, image) for _ in range(3)),
    )
    assert len(set(folders)) == 1 and folders[0].is_dir()
    (asked,) = log.read_text().splitlines()
    assert asked.split()[-1] == source
    assert [path.name for path in images.root.iterdir() if path.suffix != ".lock"] == [folders[0].name]


def test_another_file_of_the_same_name_is_another_image(images: Images, tmp_path: Path) -> None:
    file = tmp_path / "image.sif"
    file.write_text("one")
    first = images.folder(str(file))
    assert images.folder(str(file)) == first
    file.write_text("another")
    os.utime(file, (1, 1))
    assert images.folder(str(file)) != first


@pytest.mark.parametrize(
    ("image", "error", "said"),
    [
        ("registry/missing", InvalidInput, "manifest unknown"),
        ("registry/full", SandboxUnavailable, "no space left"),
        ("{folder}/broken.sif", InvalidInput, "not recognized"),
        ("{folder}/none.sif", InvalidInput, "there is no image .*none.sif on this host"),
    ],
)
def test_an_image_that_cannot_be_had_is_told(
    images: Images, tmp_path: Path, image: str, error: type[Exception], said: str
) -> None:
    (tmp_path / "broken.sif").write_text("")
    with pytest.raises(error, match=said):
        images.folder(image.format(folder=tmp_path))
    assert not [path for path in images.root.glob("*") if path.is_dir()]


async def test_a_run_of_another_kind_is_not_made_by_apptainer(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="sandboxes of local aren't made by Apptainer"):
        await ApptainerBackend(tmp_path).create("run/g0/r0/lease/0", SandboxSpec())


# ---- a whole sandbox, over a program in Apptainer's place ----


@pytest.fixture
async def stood_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApptainerBackend]:
    programs = folder / "apptainer-stand-in"
    programs.mkdir(exist_ok=True)
    shutil.copy(Path(__file__).with_name("apptainer_stand_in.py"), programs / "apptainer")
    (programs / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    backend = ApptainerBackend(folder / "sandboxes-stood-in")
    yield backend
    for left in await backend.leases():
        await backend.destroy(left.lease)


async def test_a_sandbox_in_an_image_from_its_making_to_its_end(
    stood_in: ApptainerBackend, folder: Path, tmp_path: Path, lease: str
) -> None:
    image = folder / "image, with a comma"
    write_image(image)
    spec = SandboxSpec(
        backend=ApptainerConfig(image=str(image)),
        variables={"QUOTED": "a 'b' \"c\" $d\ne", "OF_IMAGE": "2"},
        writable_roots=("/logs",),
        disk_mb=64,
    )
    report = await stood_in.probe()
    assert report.isolated, report.missing
    shell = Shell(await stood_in.create(lease, spec))
    said = await shell.text(
        'pwd; id -un; cat /app/from-the-image; env | grep -c APPTAINER; echo $PS1; echo "$QUOTED"'
    )
    assert said == "/work\nagent\n1\n0\n\na 'b' \"c\" $d\ne"
    assert await shell.text("echo $OF_IMAGE $LANG; touch /app/x 2>&1 | grep -c Read-only") == "2 C.UTF-8\n1"
    assert await shell.text("cat /proc/1/environ 2>&1 | grep -c denied; grep Seccomp: /proc/self/status") == (
        "1\nSeccomp:\t2"
    )
    await shell.run("echo kept > file; echo log > /logs/file; cd /logs")
    copies = Copies(stood_in, spec, lease, tmp_path)
    taken = await copies.take(shell)
    assert taken.exact
    verifier = Shell(await stood_in.open_verifier(lease, 0, {"deep/hidden": b"h"}))
    assert await verifier.text("cat file /logs/file $CLOTHO_HIDDEN_FILES/deep/hidden") == "kept\nlog\nh"
    again = await copies.restore(taken)
    assert await again.text("cat /work/file /logs/file") == "kept\nlog"
    assert await stood_in.system(lease) == await stood_in.system(f"{lease}1")
    await copies.destroy()
    await stood_in.destroy(lease)
    assert not await stood_in.leases() and not await stood_in.reap()


async def test_an_image_in_which_nothing_starts_is_told(
    stood_in: ApptainerBackend, tmp_path: Path, lease: str
) -> None:
    (tmp_path / "etc").mkdir()
    spec = SandboxSpec(backend=ApptainerConfig(image=str(tmp_path)))
    with pytest.raises(InvalidInput, match="nothing starts in image"):
        await stood_in.create(lease, spec)
    assert not stood_in.holds(lease)
