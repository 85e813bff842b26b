"""Answers and silences of an engine: which of its failures pass, and which stay."""

import asyncio
from pathlib import Path

import pytest

from clotho.config import engine_socket
from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.plugins.containers import engine as engine_module
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import SPECS, needs_root
from tests.sandbox.fake_engine import SLOW_SECONDS, ServedEngine
from tests.sandbox.shell import until_true
from tests.support import PATIENCE_SECONDS


@pytest.fixture
def failing(served: ServedEngine) -> Engine:
    return Engine(f"unix://{served.server_address!s}")


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("toomanyrequests: You have reached your pull rate limit", SandboxUnavailable),
        ("write /var/lib/docker/tmp/x: no space left on device", SandboxUnavailable),
        (
            "Get https://example.org/v2/: net/http: request canceled: Client.Timeout exceeded",
            SandboxUnavailable,
        ),
        ("denied: connection reset by peer", SandboxUnavailable),
        ('Get "https://example.org/v2/": EOF', SandboxUnavailable),
        (
            "reading manifest of example.org/x@sha256:404a: dial tcp: lookup example.org: no such host",
            SandboxUnavailable,
        ),
        ("example.org/bench/404-not-found: the registry is being mended", SandboxUnavailable),
        ("reading manifest latest in example.org/connection-pool: manifest unknown", InvalidInput),
        ("reading manifest 3 in example.org/connection/timeout: manifest unknown", InvalidInput),
        ("pull access denied for bad-timeout-503, repository does not exist", InvalidInput),
        ("received unexpected HTTP status: 503 Service Unavailable", SandboxUnavailable),
        ("manifest for example.org/x:latest not found: manifest unknown", InvalidInput),
        ("pull access denied for x, repository does not exist", InvalidInput),
    ],
)
def test_what_a_pull_reports_while_it_runs(
    failing: Engine, served: ServedEngine, reported: str, expected: type[Exception]
) -> None:
    served.reported = reported
    with pytest.raises(expected) as raised:
        failing.image("example.org/x")
    assert reported[-20:] in str(raised.value)


@pytest.mark.attack("platforms", "names of images that no engine can parse, to be pulled for ever")
@pytest.mark.parametrize("pull", ["missing", "always", "never"])
@pytest.mark.parametrize("name", ["Python:3.12-slim", "two words", ":tag", "a:b:c", "x@sha256:12"])
def test_names_that_no_engine_can_parse_are_refused_at_once(engine: str, name: str, pull: str) -> None:
    with pytest.raises(InvalidInput, match=r"an image is named \[registry/\]name\[:tag\]"):
        Engine(engine).image(name, pull)


REFUSED = 'Get "https://example.org/v2/": dial tcp 192.0.2.1:443: connect: connection refused'


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (f"creating build container: initializing source docker://example.org/x: {REFUSED}", "unavailable"),
        ('Get "https://example.org/v2/": dial tcp: lookup example.org: no such host', "unavailable"),
        ('Get "https://example.org/v2/": net/http: TLS handshake timeout', "unavailable"),
        ("toomanyrequests: You have reached your pull rate limit", "unavailable"),
        ("received unexpected HTTP status: 503 Service Unavailable", "unavailable"),
        ('building at STEP "COPY x /x": write /x: no space left on device', "unavailable"),
        ('building at STEP "RUN echo \\"dial tcp\\"": while running runtime: exit status 1', "invalid"),
        ('building at STEP "COPY dial tcp /x": checking on sources: no such file or directory', "invalid"),
        ("The command '/bin/sh -c curl x # connection refused' returned a non-zero code: 7", "invalid"),
        ("COPY failed: file not found in build context", "invalid"),
        ("pull access denied for x, repository does not exist", "invalid"),
        ("no FROM statement found", "invalid"),
        (REFUSED.replace("example.org", "localhost"), "invalid"),
    ],
)
def test_what_a_build_reports(
    failing: Engine, served: ServedEngine, tmp_path: Path, reported: str, expected: str
) -> None:
    """A Dockerfile that is wrong stays so; a registry that can't be reached is an outage."""
    (tmp_path / "Dockerfile").write_text("FROM example.org/x")
    served.reported = reported
    with pytest.raises(SandboxUnavailable if expected == "unavailable" else InvalidInput, match="be built"):
        failing.build(tmp_path, "Dockerfile", "localhost/x", {}, None)


def test_keeping_what_a_container_wrote_may_take_longer_than_other_requests(
    failing: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "TIMEOUT_SECONDS", SLOW_SECONDS / 3)
    assert failing.changes("container") == ["/opt"]
    failing.commit("container", "left", {"label": "value"})


def spec_of(image: str, pull: str) -> SandboxSpec:
    return SandboxSpec(backend=DockerConfig.model_validate({"image": image, "pull": pull}))


@needs_root
async def test_sandboxes_that_wait_for_an_image_hold_up_no_other_and_no_lease(
    served: ServedEngine, local: LocalBackend, lease: str, folder: Path
) -> None:
    served.reported = "manifest unknown"
    containers = ContainerBackend(folder / "waiting-for-images", f"unix://{served.server_address!s}")
    await local.create(lease, SPECS["local"])
    served.answers.clear()
    slow = spec_of("example.org/slow", "missing")
    waiting = [asyncio.create_task(containers.create(f"slow/r{n}/lease/0", slow)) for n in range(100)]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await until_true(lambda: bool(served.slow_requests))
            with pytest.raises(InvalidInput, match="no image"):
                await containers.create("other/r0/lease/0", spec_of("example.org/other", "never"))
            await local.renew(lease, 60)
            await local.leases()
            assert len(served.slow_requests) == 1, "a hundred rollouts pull it once"
    finally:
        served.answers.set()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        await local.destroy(lease)
    assert {type(each) for each in ended} == {InvalidInput}
    assert not any((folder / "waiting-for-images").glob("sandboxes/*"))


def test_the_sockets_of_this_user_come_before_those_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("docker.sock", "podman/podman.sock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        assert engine_socket() == f"unix://{tmp_path / name}"


def test_where_there_is_no_engine_it_is_said_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "engine_socket", lambda: None)
    with pytest.raises(SandboxUnavailable, match=r"systemctl --user start podman\.socket"):
        Engine(None).image("example.org/x")


@pytest.mark.parametrize("reported", ["write /x: no space left on device", "toomanyrequests: later"])
async def test_a_disk_that_fills_while_an_image_is_pulled_leaves_nothing(
    served: ServedEngine, lease: str, folder: Path, reported: str
) -> None:
    served.reported = reported
    containers = ContainerBackend(folder / "never-pulled", f"unix://{served.server_address!s}")
    for _ in range(2):
        with pytest.raises(SandboxUnavailable, match=reported):
            await containers.create(lease, spec_of("example.org/x", "missing"))
    assert len(served.slow_requests) == 2, "asked again"
    assert not containers.holds(lease)
