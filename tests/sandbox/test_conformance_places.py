"""Folders that a run names beside the usual ones, and `python`."""

from collections.abc import AsyncIterator

import pytest
from pydantic import ValidationError

from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import SandboxSpec
from tests.sandbox.backends import Backend
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell

PLACES = {"writable_roots": ("/tests", "/logs/of"), "aliases": {"/app": "/work", "/kept/logs": "/logs/of"}}


@pytest.fixture(scope="session")
def spec(spec: SandboxSpec) -> SandboxSpec:
    return SandboxSpec(**{**spec.model_dump(), **PLACES})


@pytest.fixture
async def named(backend: Backend, spec: SandboxSpec, lease: str) -> AsyncIterator[Shell]:
    yield Shell(await backend.create(lease, spec))
    await backend.destroy(lease)


async def content(shell: Shell, path: str) -> bytes:
    return (await shell.sandbox.read_file(path, 100)).content


@pytest.mark.needs("places")
async def test_further_folders_are_written_to_and_come_back(named: Shell, copies: Copies) -> None:
    await named.sandbox.write_file("/tests/deep/check", b"checked")
    await named.sandbox.write_file("/app/here", b"in the workspace")
    await named.sandbox.write_file("/kept/logs/line", b"logged")
    assert await content(named, "/work/here") == b"in the workspace"
    assert await content(named, "/logs/of/line") == b"logged"
    again = await copies.copy(named)
    assert await content(again, "/tests/deep/check") == b"checked"
    assert await content(again, "/app/here") == b"in the workspace"
    assert await content(again, "/kept/logs/line") == b"logged"


@pytest.mark.needs("isolation")
async def test_commands_see_them_under_each_of_their_paths(
    backend: Backend, named: Shell, lease: str
) -> None:
    await named.run("cd /app && echo 1 > a; echo 2 > /tests/b; echo 3 > /logs/of/c", name="made")
    assert await named.text("pwd; cat /work/a", after=job_key("made")) == "/app\n1"
    assert (await named.run("touch /logs/elsewhere")).code != 0, "nothing else is writable"
    verify = Shell(await backend.open_verifier(lease, 0, {}))
    assert await verify.text("cat /app/a /tests/b /kept/logs/c") == "1\n2\n3"
    assert await content(verify, "/app/a") == b"1\n"


@pytest.mark.needs("places")
async def test_python_is_there_where_the_host_has_python3(shell: Shell) -> None:
    assert await shell.text("python -c 'import sys; print(sys.version_info.major)'") == "3"


@pytest.mark.parametrize(
    "fields",
    [
        {"writable_roots": ("/etc/own",)},
        {"writable_roots": ("/work/inside",)},
        {"writable_roots": ("/home",)},
        {"writable_roots": ("relative",)},
        {"writable_roots": ("/a/../etc",)},
        {"writable_roots": ("/a", "/a/b")},
        {"writable_roots": tuple(f"/r{number}" for number in range(6))},
        {"aliases": {"/app": "/nowhere"}},
        {"aliases": {"/": "/work"}},
    ],
)
def test_what_cant_be_such_a_folder_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SandboxSpec.model_validate(fields)
