"""A pool of hosts through ssh: connections that are cut, hosts that vanish or aren't what they were."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from clotho.config import SandboxSettings, Settings, settings_class
from clotho.errors import InvalidInput, IsolationUnavailable, SandboxLost, SandboxUnavailable
from clotho.plugins.ssh.address import SshHost
from clotho.plugins.ssh.backend import SshBackend
from clotho.plugins.ssh.config import SshConfig
from clotho.plugins.ssh.host import PoolHost
from clotho.sandbox.backend import JobState, SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.registry import open_backend
from clotho.sandbox.verification import VerifierSetup
from tests.sandbox.conftest import SPECS
from tests.sandbox.shell import Shell, until
from tests.sandbox.ssh_host import SERVER, SshServer, make_key, patient_connections, ssh_backend
from tests.support import PATIENCE_SECONDS

SPEC = SPECS["ssh"]
Servers = Callable[[], SshServer]
Pool = Callable[..., SshBackend]


@pytest.fixture
def servers(folder: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Starts ssh servers that the test may end."""
    with patient_connections(), ExitStack() as stack:
        own = folder / request.node.name.replace("[", "-").strip("]")
        own.mkdir(mode=0o711)
        numbers = iter(range(9))
        yield lambda: stack.enter_context(SshServer(own / f"sshd-{next(numbers)}"))


@pytest.fixture
async def pool(folder: Path) -> AsyncIterator[Pool]:
    """Makes backends over hosts, whose sandboxes end with the test."""
    made: list[SshBackend] = []
    there: set[Path] = set()

    def over(*hosts: SshHost, lease_seconds: float = 600.0) -> SshBackend:
        there.update(Path(host.root) / "pool" for host in hosts)
        made.append(ssh_backend(folder / "pool", *hosts, lease_seconds=lease_seconds))
        return made[-1]

    yield over
    for backend in made:
        await backend.close()
    for local in map(LocalBackend, there):  # also where no ssh server answers any more
        for held in await local.leases():
            await local.destroy(held.lease)


async def test_a_command_goes_on_when_its_connection_is_cut(servers: Servers, pool: Pool, lease: str) -> None:
    server = servers()
    backend = pool(server.host("alpha"))
    shell = Shell(await backend.create(lease, SPEC))
    job = shell.job("echo first; while ! test -e go; do sleep 0.01; done; echo last")
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"first")
    waiting = asyncio.create_task(shell.sandbox.wait(job.key, PATIENCE_SECONDS))
    await shell.text("true")
    server.end_sessions()
    with pytest.raises(SandboxUnavailable):
        await waiting
    again = Shell(await backend.attach(lease, shell.sandbox.incarnation))
    await again.sandbox.write_file("go", b"")
    ended = await again.ended(job.key)
    assert (ended.state, ended.output) == (JobState.EXITED, b"first\nlast\n")
    assert await shell.text("echo also") == "also"


async def test_a_host_with_another_key_is_refused(servers: Servers, pool: Pool, lease: str) -> None:
    server = servers()
    before = pool(server.host("alpha"))
    made = await before.create(lease, SPEC)
    make_key(server.folder / "other")
    server.trust(server.folder / "other.pub")
    backend = pool(server.host("alpha"))
    with pytest.raises(InvalidInput, match=r"alpha shows a key that .*known_hosts doesn't have"):
        await backend.create(f"{lease}-new", SPEC)
    with pytest.raises(SandboxLost, match="shows a key"):
        await backend.attach(lease, made.incarnation)
    with pytest.raises(InvalidInput, match="shows a key"):
        await backend.probe()
    assert await backend.leases() == []
    await before.close()
    with pytest.raises(SandboxUnavailable, match=r"isn't destroyed yet: .*shows a key"):
        await before.destroy(lease)


async def test_a_host_away_for_longer_than_a_lease_has_lost_its_sandboxes(
    servers: Servers, pool: Pool, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    server = servers()
    backend = pool(server.host("alpha"), lease_seconds=600.0)
    made = await backend.create(lease, SPEC)
    server.vanish()
    monkeypatch.setattr("clotho.plugins.ssh.host.time", SimpleNamespace(monotonic=lambda: now))
    for _ in range(2):  # the first call may be what finds the connection closed
        with pytest.raises(SandboxUnavailable):
            await backend.attach(lease, made.incarnation)
    now = 599.0
    with pytest.raises(SandboxUnavailable):
        await backend.destroy(lease)
    now = 601.0
    with pytest.raises(SandboxLost):
        await backend.attach(lease, made.incarnation)
    with pytest.raises(SandboxLost):
        await backend.renew(lease, 60)
    await backend.destroy(lease)  # what replaces it isn't held up
    with pytest.raises(SandboxUnavailable, match="alpha"):
        await backend.create(f"{lease}-new", SPEC)


async def test_a_host_whose_server_does_not_start_is_out_of_reach(
    servers: Servers, pool: Pool, lease: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.plugins.ssh.host.RETRY_SECONDS", 600.0)
    server, tries = servers(), folder / "tries"
    backend = pool(server.host("alpha", command=f"echo >> {tries}; exit 3; :"), lease_seconds=1.0)
    with pytest.raises(SandboxUnavailable, match=r"ended \(3\)"):
        await backend.attach(lease, "alpha/gone")

    async def lost() -> bool:
        try:
            await backend.attach(lease, "alpha/gone")
        except SandboxUnavailable:
            return False
        except SandboxLost:
            return True
        raise AssertionError("it has no server")

    await until(lost)
    with pytest.raises(SandboxUnavailable, match=r"ended \(3\)"):
        await backend.create(lease, SPEC)
    assert tries.read_text() == "\n"

    async def closed() -> bool:
        return not server.sessions()

    await until(closed)


async def test_a_sandbox_in_the_making_has_its_place_whatever_the_host_lists(sshd: SshServer) -> None:
    host = PoolHost(sshd.host("alpha", capacity=1), "making", 600.0)
    host.reserve("new")
    assert await host.leases() == []
    assert (host.holds("new"), host.free) == (True, 0)
    host.made("new")
    assert await host.leases() == []
    assert (host.holds("new"), host.free) == (False, 1)
    await host.backend.close()


async def test_its_report_tells_of_landlock(sshd: SshServer, pool: Pool, folder: Path) -> None:
    report = await LocalBackend(folder / "reported").probe()
    assert (await pool(sshd.host("alpha")).probe()).landlock == report.landlock


@pytest.mark.slow
async def test_fifty_sandboxes_on_two_hosts_of_which_one_vanishes(servers: Servers, pool: Pool) -> None:
    alpha, beta = servers(), servers()
    hosts = alpha.host("alpha", capacity=25), beta.host("beta", capacity=25)
    backend = pool(*hosts, lease_seconds=5.0)
    leases = [f"fifty/r{number}/lease/0" for number in range(50)]
    made = dict(
        zip(leases, await asyncio.gather(*(backend.create(each, SPEC) for each in leases)), strict=True)
    )
    at = {each: sandbox.incarnation.partition("/")[0] for each, sandbox in made.items()}
    assert Counter(at.values()) == {"alpha": 25, "beta": 25}
    with pytest.raises(SandboxUnavailable, match="host alpha has its 25 sandboxes"):
        await backend.create("fifty/r50/lease/0", SPEC)
    elsewhere = pool(*hosts)
    found = await asyncio.gather(*(elsewhere.create(each, SPEC) for each in leases))
    assert [each.incarnation for each in found] == [each.incarnation for each in made.values()]

    beta.vanish()

    async def fate(lease: str) -> bool:
        """Whether it lives; asked until that is known."""
        while True:
            try:
                await backend.attach(lease, made[lease].incarnation)
                return True
            except SandboxLost:
                return False
            except SandboxUnavailable:
                await asyncio.sleep(0.2)

    lives = dict(zip(leases, await asyncio.gather(*map(fate, leases)), strict=True))
    assert lives == {each: at[each] == "alpha" for each in leases}
    assert {held.lease for held in await backend.leases()} == {each for each in leases if lives[each]}
    (gone, *_) = (each for each in leases if not lives[each])
    (kept, *_) = (each for each in leases if lives[each])
    await backend.destroy(gone)
    await backend.destroy(kept)
    assert (await backend.create(f"{gone}-next", SPEC)).incarnation.startswith("alpha/")


async def test_a_sandbox_that_an_outage_left_on_another_host_is_never_verified(
    servers: Servers, pool: Pool, lease: str
) -> None:
    server = servers()
    alpha, beta = server.host("alpha"), server.host("beta")
    left = await pool(alpha).create(lease, SPEC)
    used = Shell(await pool(beta).create(lease, SPEC))
    await used.run("echo done > answer")
    backend = pool(alpha, beta)
    with pytest.raises(SandboxUnavailable, match="alpha and beta each hold"):
        await backend.evidence(lease)
    await backend.renew(lease, 1_000.0)
    ends = {held.expires for held in await backend.leases()}
    assert len(ends) == 2 and min(ends) > time.time() + 700
    setup = VerifierSetup(incarnation=used.sandbox.incarnation)
    verifying = Shell(await backend.open_verifier(lease, 0, {}, setup=setup))
    assert await verifying.text("cat answer") == "done"
    assert left.incarnation.startswith("alpha/") and verifying.sandbox.incarnation.startswith("beta/")
    await backend.destroy(lease)
    assert await backend.leases() == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"command": "no-such-program"}, "install clotho-rollouts there"),
        ({"command": "python3 -m clotho.no_such_module"}, "install clotho-rollouts there"),
        ({"user": "no-such-user"}, "lets no-such-user in by no key"),
        ({"known_hosts": Path("/nonexistent")}, "no file of known hosts"),
    ],
)
async def test_a_host_that_has_to_be_set_up_is_no_outage(
    sshd: SshServer, pool: Pool, lease: str, changed: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        await pool(sshd.host("alpha", **changed)).create(lease, SPEC)


async def test_a_host_without_bubblewrap_is_used_only_as_unsafe(
    sshd: SshServer, pool: Pool, folder: Path, lease: str
) -> None:
    programs = folder / "programs-without-bubblewrap"
    programs.mkdir()
    for name in ("bash", "rm", "tar", "umount", "mount"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    bare = SERVER.replace("exec ", f"PATH={programs} exec ")
    with pytest.raises(IsolationUnavailable):
        await pool(sshd.host("alpha", command=bare)).create(lease, SPEC)
    with pytest.raises(IsolationUnavailable):  # a run can't allow what the host's settings don't
        await pool(sshd.host("alpha", command=bare)).create(
            lease, SPEC.model_copy(update={"unsafe_local": True})
        )
    backend = pool(sshd.host("alpha", command=bare, unsafe=True))
    assert not (await backend.probe()).isolated
    assert await Shell(await backend.create(lease, SPEC)).text("echo bare") == "bare"


async def test_a_host_that_cannot_be_asked_is_passed_over(
    servers: Servers, sshd: SshServer, pool: Pool, lease: str
) -> None:
    gone = servers()
    backend = pool(gone.host("gone"), sshd.host("alpha"))
    gone.vanish()
    made = [await backend.create(f"{lease}-{number}", SPEC) for number in range(4)]
    assert {each.incarnation.partition("/")[0] for each in made} == {"alpha"}
    with pytest.raises(SandboxUnavailable, match="host gone"):
        await backend.probe()


def test_it_is_opened_by_its_name(sshd: SshServer, folder: Path) -> None:
    hosts = [sshd.host("alpha").model_dump(mode="json")]
    settings = settings_class()(sandbox={"backend": "ssh"}, plugins={"ssh": {"hosts": hosts}})
    assert "ssh" in open_backend(settings, folder / "named").names
    assert SandboxSpec.model_validate({"backend": "ssh"}).backend == SshConfig()
    with pytest.raises(InvalidInput, match=r"set plugins\.ssh\.hosts"):
        open_backend(Settings(sandbox=SandboxSettings(backend="ssh")), folder / "named")
